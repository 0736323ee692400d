"""`fleetd demo` before anything runs: mistakes in one line, and what it does where there are no fake libraries."""

import io
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from fleetd.cli.demo import command
from fleetd.cli.demo_fleet import PLANTED, PLANTED_HOST, _fleet
from fleetd.cli.demo_host import plan_of
from fleetd.system import RealClock


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--host", "intel"], "--host 'intel': no such vendor; there are: nvidia, amd"),
        (["--host", "nvidia:0"], "give a number of GPUs from 1 to 16, like nvidia:8"),
        (["--host", "amd:17"], "give a number of GPUs from 1 to 16"),
        (["--host", "amd:"], "give a number of GPUs from 1 to 16"),
        (["--host", "amd:two"], "give a number of GPUs from 1 to 16"),
        (["--port", "9000"], "--port is for one host; add --host VENDOR"),
        (["--host", "amd", "--seed", "3"], "--seed is for a simulated fleet; add --world N"),
        (["--world", "3", "--port", "9000"], "--port is for one host; add --host VENDOR"),
        (["--world", "3", "--host", "amd"], "--host is for the demo with real processes"),
        (["--port", "0"], "Invalid value for '--port'"),
    ],
)
def test_mistakes_end_in_one_line(words: list[str], says: str) -> None:
    result = CliRunner().invoke(command, words)
    assert result.exit_code == 2
    assert says in result.output


def test_a_host_has_eight_gpus_unless_it_is_said() -> None:
    assert [(plan.vendor, plan.gpus) for plan in map(plan_of, ("nvidia", "amd:16"))] == [("nvidia", 8), ("amd", 16)]


def no_gcc(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))


def test_without_gcc_one_host_alone_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_gcc(tmp_path, monkeypatch)
    result = CliRunner().invoke(command, ["--host", "amd", "--dir", str(tmp_path / "demo")])
    assert result.exit_code == 2
    assert "demo: no fake vendor libraries: gcc, which builds them, is not installed" in result.output


def test_without_gcc_the_fleet_has_simulated_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_gcc(tmp_path, monkeypatch)
    said = io.StringIO()
    fleet = _fleet(tmp_path, RealClock(), Console(file=said, width=500))
    assert said.getvalue().count("\n") == 1
    assert "gcc, which builds them, is not installed" in said.getvalue()
    assert not fleet.fakes
    assert {plan.name: plan.fault for plan in fleet.plans.values()} == {"h01": None, PLANTED_HOST: PLANTED, "h03": None}
    assert "backend: sim" in (tmp_path / "h01.yaml").read_text()
