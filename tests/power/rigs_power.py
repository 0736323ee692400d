"""Parts, envelopes and loads of the power acceptance tests and benchmarks."""

import functools
from dataclasses import replace

import numpy as np

from fleetd.config.envelope import envelope_path, read_envelope
from fleetd.config.plants import Plant, load_plants
from fleetd.core.power.buckets import Bucket
from fleetd.core.power.chip import Chip
from fleetd.core.power.compiler import compile_envelope, filtered_limiter
from fleetd.model.envelope import Envelope, Margin
from fleetd.sim.plant import Activity, Floats, GuardedPlant, Loop, duty_cycle

PLANTS = load_plants()
STEEP, FLAT = PLANTS["mi350x-steep"], PLANTS["mi350x-flat"]


@functools.cache
def module(margin: float = 0.0) -> Envelope:
    """The module envelope (log-linear) with a sensor margin of its own."""
    return replace(read_envelope(envelope_path("mi350x-module")).envelope, margin=Margin(sensor_gain=margin))


def buckets(margin: float = 0.0) -> tuple[Bucket, ...]:
    return compile_envelope(module(margin)).buckets


def guarded(
    plant: Plant, held: tuple[Bucket, ...], *, period_s: float | None = None, gain: Floats | float = 1.0
) -> GuardedPlant:
    loop = Loop(period_s=period_s or plant.period_s, dead_s=plant.dead_s, step_s=plant.step_s)
    return GuardedPlant(chip=plant.chip, buckets=held, loop=loop, gain=gain)


def static_pair(plant: Plant) -> tuple[Bucket, ...]:
    """Two limits written once instead of a fast loop.

    PPT1 clamps raw power at 1360 W, PPT0 holds power filtered over 1 s at the TBP; the filter begins at its limit.
    """
    return (
        Bucket(name="ppt1", rate_watts=1360.0, depth_joules=0.0),
        filtered_limiter(plant.chip.tbp_watts, 1.0),
    )


def oracle_hertz(chip: Chip, *, duty: float, low: float, watts: float, low_clock_hertz: float | None) -> float:
    """A clock that no controller beats on a duty cycle, even if it knows the future.

    Of all schedules with one mean power a constant clock in the bursts is best (clock is concave in power), and the
    mean is bound by the sustained power. `low_clock_hertz`: between bursts; None: that of the bursts.
    """
    below, above = chip.clock_min_hertz, chip.clock_max_hertz
    for _ in range(60):
        middle = 0.5 * (below + above)
        between = chip.power_watts(middle if low_clock_hertz is None else low_clock_hertz, low)
        if duty * chip.power_watts(middle, 1.0) + (1 - duty) * between <= watts:
            below = middle
        else:
            above = middle
    return below


def squares(windows_s: Floats) -> Activity:
    """Nothing for a window, then everything for a window, forever."""
    return duty_cycle(np.full(len(windows_s), 0.5), windows_s, low=0.0)


def idle_then_burst(idle_s: Floats) -> Activity:
    """Nothing for a time, then everything to the end."""

    def activity(start_s: float, steps: int, step_s: float) -> Floats:
        at = start_s + step_s * np.arange(steps)[None, :]
        return (at >= idle_s[:, None]).astype(float)

    return activity


def telegraph(rng: np.random.Generator, hold_s: Floats) -> Activity:
    """Random levels, half of them all or nothing, each held for a random time. Calls must follow each other in time."""
    level = rng.random(len(hold_s))

    def activity(_start_s: float, steps: int, step_s: float) -> Floats:
        out = np.empty((len(hold_s), steps))
        change = rng.random((len(hold_s), steps)) < (step_s / hold_s)[:, None]
        fresh = np.clip(2.0 * rng.random((len(hold_s), steps)) - 0.5, 0.0, 1.0)
        for step in range(steps):
            np.copyto(level, fresh[:, step], where=change[:, step])
            out[:, step] = level
        return out

    return activity


def together(*parts: Activity) -> Activity:
    """Scenarios of several loads in one run."""
    return lambda start_s, steps, step_s: np.concatenate([part(start_s, steps, step_s) for part in parts])


def hostile(rng: np.random.Generator, scenarios: int, seconds: float) -> Activity:
    """Every kind of load that could fool a guard: two fifths squares, a fifth idle-then-burst, the rest random."""
    square, idle = scenarios * 2 // 5, scenarios // 5
    return together(
        squares(np.geomspace(20e-6, seconds / 2, square)),
        idle_then_burst(np.geomspace(20e-6, seconds * 0.9, idle)),
        telegraph(rng, np.geomspace(20e-6, seconds / 4, scenarios - square - idle)),
    )


# ── a training step ─────────────────────────────────────────────────────────────────────────────────────────────────

STEP_S, BURSTS = 12e-3, 6
"""A training step of a recommender: bursts of GEMM between memory-bound work and collectives."""
EMBEDDING, ALL_TO_ALL = 0.35, 0.15
"""Activity of what lies between two bursts, half of the time each."""
PUBLISHED_GAIN = (1.03, 1.06)


def recommender(share: Floats) -> Activity:
    """DLRM-like phases; `share`: of the boosted step that is GEMM."""
    piece = STEP_S / BURSTS

    def activity(start_s: float, steps: int, step_s: float) -> Floats:
        at = ((start_s + step_s * (np.arange(steps) + 0.5)) % piece)[None, :] / piece
        rest = np.where(at < (1 + share[:, None]) / 2, EMBEDDING, ALL_TO_ALL)
        return np.where(at < share[:, None], 1.0, rest)

    return activity


def gain_curve(plant: Plant, held: tuple[Bucket, ...]) -> list[dict[str, float]]:
    """What a whole step gains, over its GEMM share at the base clock, 0.05 to 0.5."""
    share = np.linspace(0.037, 0.43, 10)
    trace = guarded(plant, held).run(recommender(share), scenarios=len(share), seconds=0.36)
    boost = trace.busy_clock_hertz(after_s=0.12, busy=0.9) / plant.chip.clock_base_hertz
    # The shares are of the boosted step: at the base clock its bursts would take `boost` times as long.
    gain = share * boost + 1 - share
    names = ("gemm_share", "boost", "gain")
    return [
        dict(zip(names, map(float, point), strict=True))
        for point in zip(share * boost / gain, boost, gain, strict=True)
    ]
