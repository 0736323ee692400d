"""SIGHUP: what changes at once, what needs a restart, and a bad file that changes nothing."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from fleetd.compose.reload import LIVE, Reloader
from fleetd.config.files import AgentConfig, load_agent
from tests.agent.fakes_agent import FakeClock

BASE: dict[str, Any] = {
    "apiVersion": "fleetd/v1",
    "kind": "Agent",
    "state_dir": "state",
    "uplink": {"address": "127.0.0.1:9", "insecure": True},
}


class Bench:
    def __init__(self, folder: Path) -> None:
        self.file = folder / "agent.yaml"
        self.write()
        self.clock = FakeClock()
        self.applied: list[AgentConfig] = []
        config = load_agent(self.file)
        self.reloader = Reloader(self.file, config, apply=self.applied.append, clock=self.clock)

    def write(self, **changes: Any) -> None:
        self.file.write_text(yaml.safe_dump({**BASE, **changes}))

    def metrics(self) -> dict[str, float]:
        prefix = "fleetd_agent_config_"
        return {one.name.removeprefix(prefix): one.samples[0].value for one in self.reloader.collect()}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_good_file_takes_effect(bench: Bench) -> None:
    bench.write(sampler={"interval_seconds": 5.0}, place={"rack": "r7"})
    bench.clock.now_s += 100.0
    bench.reloader.reload()
    (config,) = bench.applied
    assert (config.sampler.interval_seconds, config.place.rack) == (5.0, "r7")
    assert bench.metrics() == {
        "last_reload_successful": 1.0,
        "last_reload_success_timestamp_seconds": bench.clock.wall_s(),
        "restart_needed": 0.0,
    }


@pytest.mark.parametrize("text", ["kind: [", "", "apiVersion: fleetd/v1\nkind: Agent\nstate_dir: x\n", None])
def test_a_bad_file_changes_nothing_and_is_told(
    bench: Bench, text: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    if text is None:
        bench.file.unlink()
    else:
        bench.file.write_text(text)
    read_s = bench.metrics()["last_reload_success_timestamp_seconds"]
    bench.clock.now_s += 100.0
    bench.reloader.reload()
    assert bench.applied == []
    assert bench.metrics()["last_reload_successful"] == 0.0
    assert bench.metrics()["last_reload_success_timestamp_seconds"] == read_s
    said = capsys.readouterr().out
    assert "reload_refused" in said
    assert str(bench.file) in said
    bench.write()
    bench.reloader.reload()
    assert bench.metrics()["last_reload_successful"] == 1.0


def test_what_needs_a_restart_is_named_until_it_is_taken_back(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.write(exporter={"listen": "127.0.0.1:0"}, sampler={"interval_seconds": 2.0})
    bench.reloader.reload()
    assert bench.metrics()["restart_needed"] == 1.0
    assert bench.applied[0].sampler.interval_seconds == 2.0, "the rest takes effect nevertheless"
    assert "exporter" in capsys.readouterr().out
    bench.write()
    bench.reloader.reload()
    assert bench.metrics()["restart_needed"] == 0.0


def test_every_live_part_is_a_part() -> None:
    assert set(AgentConfig.__dataclass_fields__) >= LIVE
