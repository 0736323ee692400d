"""An envelope that no limit can keep, as nobody published its numbers: it is looked at, and never enforced."""

from dataclasses import asdict
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from fleetd.agent.governor_config import GovernorConfig
from fleetd.cli.power_guard import _show
from fleetd.compose.power import usable_envelope
from fleetd.config import ConfigError
from fleetd.config.envelope import envelope_path, read_envelope, shipped_envelopes
from fleetd.core.power.keeping import keeping
from fleetd.exporter.power import PowerCollector
from tests.powerguard.governor_bench import governed, run

WHY = "no actuator takes its safe cap"
UNKNOWN = [name for name in shipped_envelopes() if keeping(read_envelope(envelope_path(name)).envelope).why]


def test_there_are_parts_of_both_kinds() -> None:
    assert "mi300x" in UNKNOWN
    assert not {"h200", "mi350x-platform"} & set(UNKNOWN)


def test_an_agent_observes_it_and_says_so_in_log_metric_and_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def case() -> None:
        with capture_logs() as logs:
            async with governed(tmp_path, start=False, vendor="amd", envelope="mi300x", mode="observe") as host:
                host.inventory = [type(gpu)(**{**asdict(gpu), "sku": "AMD Instinct MI300X"}) for gpu in host.inventory]
                shown = await host.gpu()
                status = host.governor.status()
        (said,) = [line for line in logs if line["event"] == "power_envelope_only_observed"]
        assert WHY in said["why"]
        assert (shown.mode, shown.targets_watts) == ("observe", {})
        assert shown.enforced_watts is not None, "it is looked at"
        assert WHY in status.unenforceable
        metrics = {s.name: s.value for f in PowerCollector(lambda: status).collect() for s in f.samples if not s.labels}
        assert metrics["fleetd_power_envelope_enforceable"] == 0.0
        _show({**asdict(status), "gpus": [asdict(gpu) for gpu in status.gpus]}, None, [])
        assert f"governor: this envelope can only be observed: envelope mi300x: {WHY}" in capsys.readouterr().out

    run(case())


@pytest.mark.parametrize("mode", ["safe", "boost"])
@pytest.mark.parametrize("name", UNKNOWN)
def test_more_than_looking_at_it_is_refused(name: str, mode: str) -> None:
    config = GovernorConfig(mode=mode, envelope=name)  # type: ignore[arg-type]  # one of the three
    with pytest.raises(ConfigError, match=rf"refused: .*{WHY}.*`power: {{mode: observe}}` looks at it only"):
        usable_envelope(config, name)


@pytest.mark.parametrize("name", shipped_envelopes())
def test_every_shipped_envelope_can_be_observed(name: str) -> None:
    envelope, kept = usable_envelope(GovernorConfig(envelope=name), name)
    assert envelope.name == name
    assert bool(kept.safe) is not bool(kept.why)


def test_a_budget_is_not_asked_for_by_what_cannot_be_held(tmp_path: Path) -> None:
    class Asked:
        wishes: tuple[float, ...] | None = None

        def cap(self, wishes: list[float]) -> object:
            self.wishes = tuple(wishes)
            raise RuntimeError("that is enough")

    budget = Asked()

    async def case() -> None:
        wishes: dict[str, object] = {"envelope": "mi300x", "mode": "observe", "budget": budget}
        async with governed(tmp_path, start=False, vendor="amd", **wishes) as host:  # type: ignore[arg-type]
            host.inventory = [type(gpu)(**{**asdict(gpu), "sku": "AMD Instinct MI300X"}) for gpu in host.inventory]
            with pytest.raises(RuntimeError, match="enough"):
                await host.governor.turn()

    run(case())
    assert budget.wishes == ()
