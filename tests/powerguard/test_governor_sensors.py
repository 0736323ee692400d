"""A14 through the governor itself: whatever a sensor says, `safe` within two loops, and never `boost` meanwhile."""

import asyncio
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import pytest

from fleetd.agent.governor import Governor
from fleetd.agent.governor_config import GovernorConfig
from fleetd.agent.governor_ports import Budget
from fleetd.agent.governor_seen import GovernorSeen
from fleetd.agent.power_outside import PowerOutside
from fleetd.config.envelope import envelope_path, read_envelope
from fleetd.core.power.govern import GovernConfig, Limits
from fleetd.core.power.modes import Mode, ModeConfig
from fleetd.model.host import Gpu
from fleetd.model.ids import GpuId
from fleetd.model.power import KnobReading, PowerReading
from fleetd.model.telemetry import GpuSample
from fleetd.ports import DeviceError

GPU = GpuId("GPU-0")
H200 = read_envelope(envelope_path("h200")).envelope
LOOP_S = 0.4
MISSING_WATTS = (2**32 - 1) / 1e3


class HandClock:
    """Time that the test turns on."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def elapsed_s(self) -> float:
        return self.now_s

    def wall_s(self) -> float:
        return 1e9 + self.now_s

    async def sleep_s(self, seconds: float) -> None:
        self.now_s += seconds


class FakeLine:
    """A guard that always answers; what it writes is in force at once."""

    def __init__(self) -> None:
        self.why, self.program_replaced, self.renewed_total, self.live = "", False, 0, False
        self.clocks: dict[str, float] = {}
        self.did: list[str] = []
        self.lowered: dict[str, Limits] = {}
        self.limits: dict[str, dict[str, float]] = {GPU: {"limit": 700.0}}

    def beat(self) -> None:
        self.did.append("beat")

    async def arm(self, gpus: Sequence[Mapping[str, Any]], *, ttl_s: float, grace_s: float) -> str:
        self.did.append("arm")
        self.live = bool(gpus) and ttl_s + grace_s > 0
        return ""

    async def write(
        self, limits: Mapping[str, Limits], clocks: Mapping[str, float | None], reason: str
    ) -> Mapping[str, str]:
        assert reason
        self.clocks = {gpu: hertz for gpu, hertz in {**self.clocks, **clocks}.items() if hertz is not None}
        for gpu, knobs in limits.items():
            self.limits[gpu] |= knobs
        return {}

    async def seen(self, limits: Mapping[str, Limits]) -> None:
        self.lowered |= limits

    async def hand_over(self, seconds: float) -> str:
        self.did.append(f"hand_over {seconds:g}")
        return ""

    async def disarm(self) -> str:
        self.did.append("disarm")
        self.live = False
        return ""


@dataclass
class Host:
    """A governor of one GPU whose sensor does what the test says."""

    sensor: Callable[["Host"], dict[str, Any]] = lambda _: {}
    clock: HandClock = field(default_factory=HandClock)
    line: FakeLine = field(default_factory=FakeLine)
    reads: int = 0
    last: float | None = None
    """The newest mark before this reading."""
    counted: tuple[GpuSample, ...] = ()
    budget: Budget | None = None
    hand_over_s: float = 0.0

    def __post_init__(self) -> None:
        config = GovernorConfig(
            mode="boost",
            envelope="h200",
            interval_seconds=LOOP_S,
            settle_seconds=2.0,
            hand_over_seconds=self.hand_over_s,
        )
        modes = ModeConfig(allowed=Mode.BOOST, stale_s=config.stale_s, power_max_watts=1400.0, settle_s=2.0)
        self.outside = PowerOutside(samples=lambda: self.counted)
        self.governor = Governor(
            config=config,
            envelope=H200,
            plan=lambda _: GovernConfig(modes=modes, safe={"limit": 630.0}, boost={"limit": 672.0}),
            read=self.read,
            line=self.line,
            clock=self.clock,
            inventory=lambda: [Gpu(gpu=GPU, index=0, vendor="nvidia", sku="NVIDIA H200", pci_address="0000:03:00.0")],
            released=lambda: False,
            outside=self.outside,
            budget=self.budget,
        )

    async def read(self, *, energy: bool = False, samples: Collection[GpuId] = ()) -> Sequence[PowerReading]:
        del energy, samples
        self.reads += 1
        self.line.did.append("read")
        limit = self.line.limits[GPU]["limit"]
        good = PowerReading(
            gpu=GPU,
            at_s=self.clock.now_s,
            knobs=(KnobReading(knob="limit", set_watts=limit, low_watts=200.0, high_watts=700.0),),
            enforced_watts=limit,
            power_watts=600.0 + self.reads % 7,
            temperature_celsius=60.0,
            brake=False,
            mark=600.0 + self.reads % 7,
        )
        found = replace(good, **self.sensor(self))
        self.last = found.mark
        return [found]

    def turn(self) -> str:
        """One loop; returns the mode."""
        self.clock.now_s += LOOP_S
        asyncio.run(self.governor.turn())
        return self.governor.status().gpus[0].mode

    def boosting(self) -> "Host":
        for _ in range(10):
            mode = self.turn()
        assert mode == "boost"
        assert self.line.limits[GPU]["limit"] == 672.0
        return self


def silent(host: Host) -> dict[str, Any]:
    raise DeviceError(f"the driver does not answer at {host.clock.now_s:g}")


SENSORS: dict[str, Callable[[Host], dict[str, Any]]] = {
    "stale": lambda host: {"power_watts": host.last, "mark": host.last},
    "stale-and-it-says-so": lambda host: {"mark": host.last},
    "nothing": lambda _: {"power_watts": None, "mark": None},
    "nan": lambda _: {"power_watts": math.nan, "mark": math.nan},
    "uint32-max": lambda _: {"power_watts": MISSING_WATTS, "mark": MISSING_WATTS},
    "uint32-max-watts": lambda _: {"power_watts": 2.0**32 - 1, "mark": 2.0**32 - 1},
    "zero": lambda _: {"power_watts": 0.0, "mark": 0.0},
    "negative": lambda _: {"power_watts": -5.0, "mark": -5.0},
    "hot": lambda _: {"temperature_celsius": 95.0},
    "brake": lambda _: {"brake": True},
    "silent": silent,
}


@pytest.mark.parametrize("name", SENSORS)
def test_a14_a_bad_sensor_is_safe_within_two_loops_and_never_boosts(name: str) -> None:
    host = Host().boosting()
    host.sensor = SENSORS[name]
    modes = [host.turn() for _ in range(12)]
    assert "boost" not in modes[1:], modes
    assert host.governor.status().gpus[0].why
    assert host.line.limits[GPU]["limit"] == 630.0


def test_a14_a_good_sensor_boosts_the_whole_time() -> None:
    host = Host().boosting()
    assert {host.turn() for _ in range(30)} == {"boost"}, "else the table above would prove nothing"


def test_a14_an_energy_counter_that_goes_backward_is_safe_and_boosts_again_after_a_settling_time() -> None:
    host = Host()
    sample = GpuSample(gpu=GPU, at_s=1.0, energy_joules_total=1e6)
    host.counted = (sample,)
    host.boosting()
    lied = (("energy_joules_total", 1.0),)
    host.counted = (replace(sample, energy_joules_total=None, implausible_readings_total=lied),)
    assert host.turn() == "safe"
    assert "the energy counter went backward" in host.governor.status().gpus[0].why
    assert host.line.limits[GPU]["limit"] == 630.0
    modes = [host.turn() for _ in range(10)]
    assert modes[0] == "safe"
    assert modes[-1] == "boost", "a counter that was reset counts on"


def test_stale_is_one_interval_and_a_half_unless_it_is_given() -> None:
    assert GovernorConfig(interval_seconds=0.2).stale_s == pytest.approx(0.3)
    safe, observe = GovernorConfig(mode="safe", envelope="h200"), GovernorConfig()
    assert (safe.interval_s, observe.interval_s) == (0.4, 1.0)
    assert safe.stale_s < 2 * safe.interval_s
    assert GovernorConfig(stale_seconds=5.0).stale_s == 5.0
    with pytest.raises(ValueError, match="stale_seconds"):
        GovernorConfig(stale_seconds=0.0)


@pytest.mark.parametrize(("codes", "mode"), [((162, 164), "boost"), ((163,), "safe"), ((165,), "safe")])
def test_lost_power_smoothing_ends_boost_in_the_next_turn(codes: tuple[int, ...], mode: str) -> None:
    host = Host().boosting()
    assert host.governor.status().gpus[0].smoothing_lost is None
    for code in codes:
        host.outside.hear(f"nvidia.xid.{code}", GPU, "0000:03:00")
    assert host.turn() == mode
    found = host.governor.status().gpus[0]
    assert found.smoothing_lost is (mode == "safe")
    assert (f"XID {codes[-1]}" in found.why) == (mode == "safe")
    host.outside.hear("nvidia.xid.162", GPU, "0000:03:00")
    modes = [host.turn() for _ in range(10)]
    assert modes[-1] == ("safe" if codes == (165,) else "boost")


@pytest.mark.parametrize("loop_s", [0.4, 1.0])
def test_rings_are_asked_for_in_turn_and_each_before_it_forgets(loop_s: float) -> None:
    gpus, seen = [GpuId(f"GPU-{n}") for n in range(8)], GovernorSeen(H200)
    asked: dict[GpuId, list[float]] = {gpu: [] for gpu in gpus}
    most = 0
    for turn in range(60):
        now_s = 50.0 + turn * loop_s
        due = seen.due(gpus, now_s)
        most = max(most, len(due) if turn else 0)
        for gpu in due:
            asked[gpu].append(now_s)
    assert all(times[0] == 50.0 for times in asked.values()), "all at first"
    assert max(b - a for times in asked.values() for a, b in pairwise(times)) < 2.36, "what an H200's ring holds"
    assert most <= 5, "and no turn asks for all of them again"


def test_a_long_first_look_costs_no_lease() -> None:
    host = Host()
    host.turn()
    assert host.line.did[:4] == ["beat", "read", "beat", "arm"], "renewed only while the loop has turned lately"


@pytest.mark.parametrize(("enforced_watts", "told_watts"), [(300.0, 300.0), (5.0, 200.0)])
def test_the_guard_is_told_of_no_limit_that_it_could_not_fall_to(enforced_watts: float, told_watts: float) -> None:
    host = Host().boosting()
    host.sensor = lambda _: {"enforced_watts": enforced_watts}
    assert host.turn() == "safe"
    assert host.line.lowered == {GPU: {"limit": told_watts}}
