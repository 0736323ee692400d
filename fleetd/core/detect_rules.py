"""The rules of the detection: what each reading says about a GPU. Pure.

A rule takes a reading, the notes of the readings before and the thresholds, and yields what it sees. It decides about
the present only; when that becomes a finding, and when it is over, is decided in `detect`.
"""

from collections.abc import Callable, Iterator

from fleetd.core.detect_config import DetectConfig
from fleetd.core.detect_notes import Notes, Seen
from fleetd.model.telemetry import GpuSample, Labelled

REMAP_FAILED = "nvidia.remap.failed"
REMAP_PENDING = "nvidia.remap.pending"
BAD_PAGES_PENDING = "amd.bad_page.pending"
ECC_UNCORRECTED = "telemetry.ecc.uncorrected"
ECC_CORRECTED_RATE = "telemetry.ecc.corrected_rate"
ECC_STORM = "telemetry.ecc.corrected_storm"
COUNTERS_IMPLAUSIBLE = "telemetry.counters.implausible"
PCIE_DEGRADED = "telemetry.pcie.degraded"
PCIE_REPLAYS = "telemetry.pcie.replay_rate"
LINK_DOWN = "telemetry.link.down"
LINK_UNEXPECTED = "telemetry.link.unexpected"
LINK_ERRORS = "telemetry.link.errors"
POWER_BRAKE = "telemetry.throttle.power_brake"
THERMAL = "telemetry.throttle.thermal"
CLOCK_STUCK = "telemetry.clock.stuck"
GPU_LOST = "telemetry.gpu.lost"
SENSOR_STALE = "telemetry.sensor.stale"
SENSOR_ZERO = "telemetry.sensor.zero"
RECOVERY = "nvidia.recovery_action"

CODES = frozenset(
    {
        *(REMAP_FAILED, REMAP_PENDING, BAD_PAGES_PENDING, ECC_UNCORRECTED, ECC_CORRECTED_RATE, ECC_STORM),
        *(COUNTERS_IMPLAUSIBLE, PCIE_DEGRADED, PCIE_REPLAYS, LINK_DOWN, LINK_UNEXPECTED, LINK_ERRORS),
        *(POWER_BRAKE, THERMAL, CLOCK_STUCK, GPU_LOST, SENSOR_STALE, SENSOR_ZERO, RECOVERY),
    }
)
"""Everything that detection can say."""
_STORM_S = 10.0
_HOUR_S = 3600.0
_MINUTE_S = 60.0
_SUSPENDED_STEP = 0xFFFF0
"""Reading the RAS counters of a suspended AMD GPU added this much to both, at each query (a public note)."""
_STALE_READINGS = 60
_SENSELESS = 5.0
"""Readings left out within a minute: a single one comes with every reset of a driver."""
_LINK_S = 10.0
"""Links train again after a reset, and while they do they are down."""
_BRAKE = ("power_brake",)
_HEAT = ("software_thermal", "hardware_thermal", "prochot", "socket_thermal", "vr_thermal", "hbm_thermal")
_ALL = ("power_cap", "hardware_slowdown", "sync_boost", "board_limit", "reliability", *_BRAKE, *_HEAT)
_RECOVERY = (
    *("nothing", "a reset of the GPU", "a reboot", "a drain of its peers", "a drain and a reset"),
    *("a recovery of the fabric's domain", "a reset of the bus", "a reboot of the system"),
)
"""By the catalogue's number of `recovery_action`."""
_LOST = ("gpu is lost", "no longer names it")
"""What NVML says of a GPU that fell off the bus, and what the devices say of one that the driver does not list."""


Rule = Callable[[GpuSample, Notes, DetectConfig], Iterator[Seen]]


def lost(trouble: str) -> bool | None:
    """Whether the devices say that the GPU is gone; None: it does not answer, for another reason."""
    return True if any(saying in trouble.lower() for saying in _LOST) else None


def implausible(corrected: float, uncorrected: float, config: DetectConfig) -> bool:
    """Whether the growth of both error counters between two readings comes from no memory (S39)."""
    if corrected < 0 or uncorrected < 0:
        return False  # a reset, not a jump
    alike = corrected == uncorrected and corrected >= config.implausible_jump
    stepped = any(grown >= _SUSPENDED_STEP and grown % _SUSPENDED_STEP == 0 for grown in (corrected, uncorrected))
    return alike or stepped


def memory_errors(sample: GpuSample, notes: Notes, config: DetectConfig) -> Iterator[Seen]:
    """Rates of ECC errors, unless the counters lie."""
    corrected, uncorrected = sample.ecc_corrected_total, sample.ecc_uncorrected_total
    before = notes.before("ecc.corrected", corrected), notes.before("ecc.uncorrected", uncorrected)
    # Of a part that has no such counters nothing is asked; the devices leave out, and count, what has no sense at all.
    senseless = sum(value for _, value in sample.implausible_readings_total)
    often = notes.count("senseless", senseless, at_least=_SENSELESS, within_s=_MINUTE_S)
    lies, why = None, f"readings that cannot be true: {notes.rate('senseless')}"
    if None not in (corrected, uncorrected, *before):
        grown = (corrected or 0.0) - (before[0] or 0.0), (uncorrected or 0.0) - (before[1] or 0.0)
        lies = implausible(*grown, config)
        if lies:
            why = f"{grown[0]:.0f} corrected and {grown[1]:.0f} uncorrected errors at once, between two readings"
    yield Seen(code=COUNTERS_IMPLAUSIBLE, bad=worst(lies, often), why=why)
    if lies:
        notes.forget("ecc.rate", "ecc.storm", "ecc.hard")
    hard = notes.count("ecc.hard", uncorrected, at_least=config.ecc_uncorrected_count, within_s=config.window_seconds)
    yield Seen(code=ECC_UNCORRECTED, bad=hard, why=f"uncorrected memory errors: {notes.rate('ecc.hard')}")
    at_least = config.ecc_storm_per_second * _STORM_S
    storm = notes.count("ecc.storm", corrected, at_least=at_least, within_s=_STORM_S)
    yield Seen(code=ECC_STORM, bad=storm, why=f"corrected memory errors: {notes.rate('ecc.storm')}")
    rate = notes.count("ecc.rate", corrected, at_least=config.ecc_corrected_per_hour, within_s=_HOUR_S)
    # A storm is told as such; that its rate is high, too, says nothing more.
    yield Seen(
        code=ECC_CORRECTED_RATE,
        bad=None if storm else rate,
        why=f"corrected memory errors: {notes.rate('ecc.rate')}",
    )


def memory_repair(sample: GpuSample, _notes: Notes, _config: DetectConfig) -> Iterator[Seen]:
    """Row remapping that waits or failed, pages that wait to be retired."""
    pages = sample.bad_pages_pending
    yield Seen(code=BAD_PAGES_PENDING, bad=_is(pages), why=f"{pages or 0:.0f} bad pages wait for a reset")
    failed, pending = _is(sample.row_remap_failed_ratio), _is(sample.row_remap_pending_ratio)
    yield Seen(code=REMAP_FAILED, bad=failed, why="a row remap failed" if failed else "no row remap has failed")
    yield Seen(
        code=REMAP_PENDING, bad=pending, why="a row remap waits for a reset" if pending else "no row remap is pending"
    )


def throttling(sample: GpuSample, notes: Notes, config: DetectConfig) -> Iterator[Seen]:
    """Power brake and heat, by their share of the time: of the present bits, or of the driver's own clocks of it."""
    window_s = config.window_seconds
    for code, reasons, at_least, what in (
        (POWER_BRAKE, _BRAKE, config.power_brake_share, "the power brake is on"),
        (THERMAL, _HEAT, config.thermal_share, "heat lowers the clocks"),
    ):
        now = _is(_total(sample.throttle_active_ratio, reasons))
        bits = notes.share(code, now, at_least=at_least, within_s=window_s)
        seconds = _total(sample.throttle_seconds_total, reasons)
        clock = notes.count(f"{code}.seconds", seconds, at_least=at_least * window_s, within_s=window_s)
        verdict = worst(bits, clock)
        why = f"{what} for {at_least:.0%} of {window_s:.0f} s or more" if verdict else f"{what} for less than that"
        yield Seen(code=code, bad=verdict, why=why)


def clock(sample: GpuSample, notes: Notes, config: DetectConfig) -> Iterator[Seen]:
    """A clock that stays low under load, while no reason is told. Without knowledge of the reasons nothing is said."""
    now, highest = sample.sm_clock_hertz, sample.sm_clock_max_hertz
    seconds = _total(sample.throttle_seconds_total, _ALL)
    window_s = config.window_seconds
    slowed = notes.count("throttle.any", seconds, at_least=config.thermal_share * window_s, within_s=window_s)
    reasons = [value > 0 for reason, value in sample.throttle_active_ratio if reason != "low_utilization"]
    explained = worst(any(reasons) if reasons else None, slowed)
    if now is None or not highest or not busy(sample, config) or explained is None:
        yield Seen(code=CLOCK_STUCK, bad=None, why="")
        return
    low = now < config.clock_low_ratio * highest
    why = f"the SM clock is {now / 1e6:.0f} of {highest / 1e6:.0f} MHz under load, and no reason is told"
    bad = (False if not low else None) if explained else low
    yield Seen(code=CLOCK_STUCK, bad=bad, why=why if low else "the clock follows the load", raise_s=window_s)


def pcie(sample: GpuSample, notes: Notes, config: DetectConfig) -> Iterator[Seen]:
    """Replays, and a link that has trained down. An idle link is slower on purpose: judged under load only."""
    often = notes.count(
        "pcie.replay", sample.pcie_replay_total, at_least=config.pcie_replays_per_minute, within_s=_MINUTE_S
    )
    yield Seen(code=PCIE_REPLAYS, bad=often, why=f"PCIe replays: {notes.rate('pcie.replay')}")
    pairs = (
        ("generation", sample.pcie_link_generation, sample.pcie_link_generation_max),
        ("width", sample.pcie_link_width, sample.pcie_link_width_max),
    )
    known = [(what, now, most) for what, now, most in pairs if now and most]
    below = [f"{what} {now:g} of {most:g}" for what, now, most in known if now < most]
    bad: bool | None = None
    if busy(sample, config):  # half a picture may show the fault, but never its end
        bad = True if below else False if len(known) == len(pairs) else None
    why = f"the PCIe link runs under load at {', '.join(below)}" if below else "the PCIe link runs at its best"
    yield Seen(code=PCIE_DEGRADED, bad=bad, why=why, raise_s=config.window_seconds)


def fabric(sample: GpuSample, notes: Notes, config: DetectConfig) -> Iterator[Seen]:
    """Links between GPUs: how many are up, against what the part should have; and their errors (S18)."""
    if sample.fabric_link_up_ratio:
        up = sum(value > 0 for _, value in sample.fabric_link_up_ratio)
        down = [link for link, value in sample.fabric_link_up_ratio if not value > 0]
        expected = config.links_of(notes.sku)
        unknown = expected is None and bool(down) and up > 0
        why = f"{up} links are up" if not down else f"{up} links are up; down: {', '.join(down)}"
        missing = None if expected is None else up < expected
        yield Seen(code=LINK_DOWN, bad=missing, why=f"{why}; this part has {expected}", raise_s=_LINK_S)
        yield Seen(
            code=LINK_UNEXPECTED, bad=unknown, why=f"{why}; not known how many {notes.sku!r} has", raise_s=_LINK_S
        )
    families = (
        sample.fabric_link_crc_errors_total,
        sample.fabric_link_replay_errors_total,
        sample.fabric_link_recovery_errors_total,
    )
    errors = sum(value for family in families for _, value in family) if any(families) else None
    often = notes.count("fabric.errors", errors, at_least=config.link_errors_per_minute, within_s=_MINUTE_S)
    yield Seen(code=LINK_ERRORS, bad=often, why=f"errors of all links of the GPU: {notes.rate('fabric.errors')}")


def recovery(sample: GpuSample, _notes: Notes, _config: DetectConfig) -> Iterator[Seen]:
    """What the driver itself asks for; only its own "nothing" ends it (S40)."""
    action = sample.recovery_action
    bad = None if action is None else action > 0
    asked = _RECOVERY[int(action)] if action and int(action) < len(_RECOVERY) else f"action {action}"
    yield Seen(code=RECOVERY, bad=bad, why=f"the driver asks for: {asked}" if bad else "the driver asks for nothing")


def zeros(sample: GpuSample, notes: Notes, config: DetectConfig) -> Iterator[Seen]:
    """Readings that cannot be 0 on a busy GPU, and are, to the last bit (S41)."""
    values = {
        "power_watts": sample.power_watts,
        "power_instant_watts": sample.power_instant_watts,
        "sm_clock_hertz": sample.sm_clock_hertz,
        "graphics_active_ratio": sample.graphics_active_ratio,
        "sm_active_ratio": sample.sm_active_ratio,
    }
    zero = [name for name, value in values.items() if value == 0.0]
    bad: bool | None = None
    if busy(sample, config):
        # Only the reading that was 0 proves that it is measured again: it is remembered, a bit for each of them.
        bits = sum(1 << place for place, name in enumerate(values) if name in zero)
        bits |= int(notes.before("zero.bits", None) or 0)
        notes.before("zero.bits", float(bits))
        suspects = [value for place, value in enumerate(values.values()) if bits >> place & 1]
        bad = True if zero else None if None in suspects else False
    why = f"exactly 0 on a busy GPU: {', '.join(zero)}" if zero else "no reading of a busy GPU is 0"
    yield Seen(code=SENSOR_ZERO, bad=bad, why=why, raise_s=config.window_seconds)


def busy(sample: GpuSample, config: DetectConfig) -> bool | None:
    """Whether the GPU works; None when it does not say."""
    ratio = sample.utilization_ratio
    return None if ratio is None else ratio >= config.busy_ratio


def stale(sample: GpuSample, notes: Notes, config: DetectConfig) -> Iterator[Seen]:
    """Power, temperature and clock of a busy GPU that are all the same for minutes."""
    power = sample.power_watts if sample.power_instant_watts is None else sample.power_instant_watts
    values = {"power": power, "temperature": sample.temperature_celsius, "clock": sample.sm_clock_hertz}
    kept = [notes.same(f"same.{name}", value) for name, value in values.items() if value is not None]
    if len(kept) < 2 or not busy(sample, config):  # noqa: PLR2004 - one alone may well be held by a limit
        notes.forget("same.power", "same.temperature", "same.clock")
        yield Seen(code=SENSOR_STALE, bad=None, why="")
        return
    last_s = min(notes.now_s - one.since_s for one in kept if one)
    still = last_s >= config.stale_seconds and all(one and one.readings >= _STALE_READINGS for one in kept)
    moved = last_s == 0.0
    why = f"power, temperature and clock have not changed for {last_s:.0f} s under load" if still else "they change"
    yield Seen(code=SENSOR_STALE, bad=True if still else False if moved else None, why=why)


def _is(value: float | None) -> bool | None:
    """A flag of the catalogue (1 or 0, or the share of a window) as a verdict."""
    return None if value is None else value > 0.0


def worst(*verdicts: bool | None) -> bool | None:
    """Of several sources on one thing: the worst wins, and only those that know speak (S40)."""
    known = [verdict for verdict in verdicts if verdict is not None]
    return any(known) if known else None


def _total(family: Labelled, labels: tuple[str, ...]) -> float | None:
    """The sum over some labels of a family; None when it has none of them."""
    found = [value for label, value in family if label in labels]
    return sum(found) if found else None


RULES: tuple[Rule, ...] = (
    memory_errors,
    memory_repair,
    recovery,
    throttling,
    clock,
    pcie,
    fabric,
    zeros,
    stale,
)
