"""`python -m burnin.guard` and the examples: what they say, and the documented exit codes."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from burnin.guard import save_step
from burnin.guard.__main__ import main
from burnin.spec import SpecError
from fleetd.cli import COMMANDS

ROOT = Path(__file__).parents[2]
BUILD = """
import torch
from torch import nn

class Racy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1
    @staticmethod
    def backward(ctx, g):
        order = torch.randperm(g.shape[0], generator=NOISE)
        out = torch.zeros(g.shape[1])
        for row in order:
            out = out + g[row] * 1.1
        return g + out * 0

NOISE = torch.Generator()
NOISE.seed()

def steady():
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 2))
    def fn(model, batch):
        loss = model(batch["x"]).square().mean()
        loss.backward()
        return loss
    return model, fn

def racy():
    model, _ = steady()
    def fn(model, batch):
        hidden = model[0](batch["x"])
        hidden = hidden + torch.rand(hidden.shape, generator=NOISE)
        loss = model[2](hidden).square().mean()
        loss.backward()
        return loss
    return model, fn

def other():
    return nn.Linear(2, 2), None

def raising():
    raise KeyError("no such recipe")

def fails():
    model, _ = steady()
    return model, lambda model, batch: 1 / 0

def single():
    return nn.Linear(2, 2)
"""


def write_run(path: Path, *, factor: float = 1.0, ne: float | None = 0.5) -> Path:
    lines = [json.dumps({"step": step, "loss": factor * (2 + 1 / step), "ne": ne}) for step in range(1, 30)]
    path.write_text("\n".join(lines))
    return path


def test_parity_has_the_documented_exit_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, same = write_run(tmp_path / "a"), write_run(tmp_path / "b", factor=1.002)
    apart = write_run(tmp_path / "c", factor=1.01)
    assert main(["parity", str(one), str(same), "--json", str(tmp_path / "out")]) == 0
    assert json.loads((tmp_path / "out").read_text())["ok"] is True
    assert main(["parity", str(one), str(apart)]) == 1
    assert main(["parity", str(one), str(write_run(tmp_path / "d", ne=0.51))]) == 1
    assert "NO parity" in capsys.readouterr().out
    assert main(["parity", str(one), str(tmp_path / "missing")]) == 3
    assert main(["parity", str(one)]) == 2
    assert main(["parity", str(one), str(one), "--json", str(tmp_path / "no" / "where")]) == 3
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 3
    assert all(line.startswith("guard: ") for line in errors)
    assert main(["parity", str(one), str(same), "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["identical"] is False


@pytest.fixture
def step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "racing_builds.py").write_text(BUILD)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 2))
    save_step(tmp_path / "step.pt", model, {"x": torch.randn(3, 4)})
    return tmp_path / "step.pt"


def test_bisect_finds_nothing_in_a_step_that_repeats_itself(step: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bisect", str(step), "--build", "racing_builds:steady", "--device", "cpu"]) == 0
    assert "operations alike" in capsys.readouterr().out


def test_bisect_names_the_first_operation_that_differs(step: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["bisect", str(step), "--build", "racing_builds:racy", "--device", "cpu", "--device", "cpu"]
    assert main([*arguments, "--json", "-"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["split"]["name"].startswith("aten.rand")
    assert found["operations"] > found["split"]["index"] > 0


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"--build": "nowhere:f"}, "nowhere"),
        ({"--build": "racing_builds:nothing"}, "nothing"),
        ({"--build": "racing_builds:NOISE"}, "cannot be called"),
        ({"--build": "racing_builds:other"}, "not the saved one"),
        ({"--device": "toaster"}, "--device"),
        ({"--device": "cuda:99"}, "cuda:99"),
        ({"--device": "meta"}, "meta"),
        ({"--device": "mps"}, "mps"),
        ({"--device": "cpu:7"}, "cpu:7"),
        ({"--deadline": "nan"}, "--deadline nan"),
        ({"--deadline": "-1"}, "--deadline -1"),
        ({"--json": "step.pt"}, "--json step.pt"),
    ],
)
def test_mistakes_are_one_line(
    step: Path, changes: dict[str, str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {"--build": "racing_builds:steady", "--device": "cpu", **changes}
    assert main(["bisect", str(step), *[part for pair in options.items() for part in pair]]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(("build", "says"), [("raising", "KeyError"), ("fails", "ZeroDivision"), ("single", "Type")])
def test_a_program_that_fails_is_no_difference_between_devices(
    step: Path, build: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bisect", str(step), "--build", f"racing_builds:{build}", "--device", "cpu"]) == 3
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("options", [("--loss", "nan"), ("--ne", "-1"), ("--loss", "inf"), ("--json", "a")])
def test_parity_refuses_what_cannot_be(
    options: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    before = write_run(tmp_path / "a").read_text()
    assert main(["parity", "a", "a", *options]) == 2
    assert options[0] in capsys.readouterr().err
    assert (tmp_path / "a").read_text() == before


@pytest.mark.parametrize("module", ["burnin.guard", "burnin.examples.gpt"])
def test_an_error_that_nobody_foresaw_does_not_look_like_a_finding(module: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import click\ndef main(*_, **__): raise ZeroDivisionError\nclick.Command.main = main\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", module, "--help"], capture_output=True, text=True, check=False, cwd=ROOT,
        env=os.environ | {"PYTHONPATH": f"{tmp_path}:{ROOT}"},
    )  # fmt: skip
    assert done.returncode == 3
    assert "ZeroDivisionError" in done.stderr


def test_what_is_no_step_is_told(step: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = step.with_name("bad.pt")
    for content in (b"", b"junk", b"PK\x03\x04" + bytes(50)):
        bad.write_bytes(content)
        assert main(["bisect", str(bad), "--build", "racing_builds:steady"]) == 2
    for content in ({"schema": "another"}, {"schema": "fleetd.guard.step/1"}):
        torch.save(content, bad)
        assert main(["bisect", str(bad), "--build", "racing_builds:steady"]) == 2
    assert main(["bisect", str(step.with_name("none.pt")), "--build", "racing_builds:steady"]) == 2
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 6
    assert all("save_step" in line for line in errors)
    assert issubclass(SpecError, ValueError)


def test_fleetd_hands_over() -> None:
    assert COMMANDS["guard"] == "fleetd.cli.guard:command"
    done = subprocess.run(
        [sys.executable, "-m", "fleetd", "guard", "parity", "/none", "/none"], capture_output=True, text=True,
        check=False, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 3
    assert done.stderr.startswith("guard: /none")


def example(name: str, *options: str) -> Any:
    return subprocess.run(
        [sys.executable, "-m", f"burnin.examples.{name}", *options],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )


@pytest.mark.timeout(900)
def test_an_example_names_the_culprit_and_exits_with_1(tmp_path: Path) -> None:
    done = example("gpt", "--inject", "chip", "--json", str(tmp_path / "out"))
    told = json.loads((tmp_path / "out").read_text())
    assert (told["verdict"], told["culprit"]) == ("chip-persistent", {"rank": 2, "gpu": "cpu-2"}), done.stderr
    assert done.returncode == told["exit_code"] == 1


@pytest.mark.timeout(900)
def test_a_clean_example_is_clean_and_trains_as_without_the_guard(tmp_path: Path) -> None:
    guarded = example("dlrm", "--log", str(tmp_path / "a"), "--json", str(tmp_path / "out"), "--steps", "12")
    plain = example("dlrm", "--log", str(tmp_path / "b"), "--steps", "12", "--no-guard")
    told = json.loads((tmp_path / "out").read_text())
    assert (told["verdict"], told["culprit"], guarded.returncode) == ("none", None, 0), guarded.stderr
    assert told["report"]["verified_by_peers"] == 2
    assert plain.returncode == 3  # nothing was checked
    assert (tmp_path / "a").read_text() == (tmp_path / "b").read_text()
    assert main(["parity", str(tmp_path / "a"), str(tmp_path / "b")]) == 0


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        ('{"step": 1e400, "loss": 1}', 3),
        ("\n".join(f'{{"step": {step}, "loss": 1e308}}' for step in range(1, 9)), 0),
        ('{"step": 1, "loss": Infinity}\n{"step": 2, "loss": -Infinity}', 1),
        ('{"step": 1, "loss": NaN}', 1),
    ],
    ids=["a step without end", "a sum without end", "both infinities", "no number"],
)
def test_parity_of_runs_that_diverged(
    lines: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run").write_text(lines)
    assert main(["parity", str(tmp_path / "run"), str(tmp_path / "run"), "--json", "-"]) == code

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    if code != 3:
        json.loads(capsys.readouterr().out, parse_constant=refuse)
