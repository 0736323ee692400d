"""Tuning: which set-point serves a job best, found by successive halving. No trial may break the envelope.

Every candidate gets a short trial, the better third a longer one, and so on; the last trial is longer than the longest
window, so that all windows have judged the winner. A candidate that breaks the envelope less its margin in any trial is
out for good, however fast it is. What a trial is belongs to the caller: a simulated part, or a canary.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from fleetd.core.power.buckets import Bucket
from fleetd.core.power.checker import TOLERANCE
from fleetd.core.power.compiler import compile_envelope, filtered_limiter
from fleetd.model.envelope import Envelope

KEEP = 3
"""One in so many candidates goes on."""
MAX_CANDIDATES = 512
SIGMAS = (0.5, 1.0)
RAW_RATIOS = (1.0, 1.1, 1.2, 1.36, 1.6, 2.0)
"""Limits on raw power that are tried, to the TBP, as far as the part takes them."""
CAP_RATIOS = (None, 1.15, 1.3)
"""Clock caps that are tried, to the base clock; None: no cap."""
SLOWEST_FILTER_S = 1.0
"""Assumed of a filter that nobody has measured."""


class Profile(StrEnum):
    """What holds the power."""

    FAST_LOOP = "fast_loop"
    """The buckets of the envelope, in the part's own loop."""
    STATIC = "static"
    """Two limits that are written once: raw power, and power through the firmware's filter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One set-point."""

    profile: Profile
    sigma: float = 1.0
    """Share of every bucket's depth that is used; without a meaning for `static`."""
    raw_watts: float | None = None
    """Limit on raw power (PPT1 of AMD, the power limit of NVIDIA); None: the highest that the part takes."""
    clock_cap_hertz: float | None = None
    """Locked highest clock; None: no cap."""

    def __post_init__(self) -> None:
        """Refuse what is no set-point. Raises ValueError."""
        if not 0 < self.sigma <= 1:
            raise ValueError(f"sigma {self.sigma:g}: a share above 0, at most 1")
        for name in ("raw_watts", "clock_cap_hertz"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name} {value:g}: must be above 0")

    def buckets(self, envelope: Envelope) -> tuple[Bucket, ...]:
        """What holds the power of the part under this set-point, margin taken off. Raises Infeasible."""
        compiled = compile_envelope(envelope)
        clamp = () if self.raw_watts is None else (Bucket(name="raw", rate_watts=self.raw_watts, depth_joules=0.0),)
        if self.profile is Profile.STATIC:
            taus = [knob.tau_s for knob in envelope.knobs if knob.name == "ppt0"]
            tau = next((t for t in taus if t is not None), SLOWEST_FILTER_S)
            return (*clamp, filtered_limiter(compiled.sustained_watts, tau))
        scaled = (
            Bucket(name=b.name, rate_watts=b.rate_watts, depth_joules=self.sigma * b.depth_joules)
            for b in compiled.buckets
        )
        return (*clamp, *scaled)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One kind of phase of a job: bursts of a length, and what share of the time they run."""

    duty: float
    kernel_s: float
    """Length of a burst."""
    weight: float = 1.0
    """Share of the job's time at the base clock, to the sum of all weights."""

    def __post_init__(self) -> None:
        """Refuse what is no work. Raises ValueError."""
        if not (0 < self.duty <= 1 and 0 < self.kernel_s <= 1 and 0 < self.weight < math.inf):
            raise ValueError(
                f"duty {self.duty:g}, kernel {self.kernel_s:g} s, weight {self.weight:g}: "
                "needs 0 < duty <= 1, 0 < kernel <= 1 s, weight > 0"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What one trial of a candidate showed."""

    candidate: Candidate
    seconds: float
    speedup: float
    """Of the job's bursts, against the base clock, weighted by time."""
    worst_ratio: float
    """Worst audited average to the envelope's allowance without its margin."""


Evaluate = Callable[[Sequence[Candidate], float], Sequence[Trial]]
"""(candidates, seconds of each trial) → one trial each, in that order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One round."""

    seconds: float
    trials: tuple[Trial, ...]
    broken: tuple[Trial, ...]
    """Out for good: they broke the envelope less its margin."""
    kept: tuple[Trial, ...]
    """Best first."""


def weighted_speedup(works: Sequence[Work], boosts: Sequence[float]) -> float:
    """How much sooner the bursts of a mix end: times add up, so that the mean of the boosts is harmonic."""
    total = sum(work.weight for work in works)
    return total / sum(work.weight / boost for work, boost in zip(works, boosts, strict=True))


def candidates(envelope: Envelope, *, base_hertz: float) -> list[Candidate]:
    """The grid that is searched: profiles, bucket depths, limits that the part takes, and clock caps.

    Raises:
        ValueError: There are more than `MAX_CANDIDATES`.
    """
    raw = {knob.name: knob for knob in envelope.knobs if knob.name in {"ppt1", "limit"}}
    limits: list[float | None] = [None]
    for knob in raw.values():
        limits += [
            r * envelope.tbp_watts for r in RAW_RATIOS if knob.low_watts <= r * envelope.tbp_watts <= knob.high_watts
        ]
    caps = [None if ratio is None else ratio * base_hertz for ratio in CAP_RATIOS]
    found = [
        Candidate(profile=Profile.FAST_LOOP, sigma=sigma, raw_watts=watts, clock_cap_hertz=cap)
        for sigma, watts, cap in itertools.product(SIGMAS, limits, caps)
    ]
    found += [
        Candidate(profile=Profile.STATIC, raw_watts=watts, clock_cap_hertz=cap)
        for watts, cap in itertools.product(limits, caps)
        if watts is not None
    ]
    if len(found) > MAX_CANDIDATES:
        raise ValueError(f"{len(found)} candidates; at most {MAX_CANDIDATES} are tried")
    return found


def halving(
    tried: Sequence[Candidate], evaluate: Evaluate, *, envelope: Envelope, seconds: float, rungs: int = 3
) -> Iterator[Rung]:
    """Run the rounds, one after the other; the winner is the first of the last rung's `kept`, if there is one.

    Args:
        tried: Candidates; of two that are equally good the earlier one wins.
        evaluate: Runs trials.
        envelope: With the margin that must be left.
        seconds: Of a trial in the last round; each round before it takes a half of the one after it.
        rungs: Rounds.

    Raises:
        ValueError: The last trial would not see the longest window, or there is nothing to try.
    """
    longest = envelope.enforced[-1].over_s
    if seconds <= longest:
        raise ValueError(f"trials of {seconds:g} s do not see the window of {longest:g} s")
    if not tried or rungs < 1:
        raise ValueError("nothing to try")
    order = {candidate: number for number, candidate in enumerate(tried)}
    left = list(tried)
    for rung in range(rungs):
        length = seconds / 2 ** (rungs - 1 - rung)
        trials = tuple(evaluate(left, length))
        broken = tuple(t for t in trials if not t.worst_ratio <= (1 - envelope.margin.total) * (1 + TOLERANCE))
        good = [t for t in trials if t not in broken]
        good.sort(key=lambda t: (-t.speedup, t.worst_ratio, order[t.candidate]))
        last = rung == rungs - 1
        kept = good if last else good[: max(1, math.ceil(len(trials) / KEEP))]
        yield Rung(seconds=length, trials=trials, broken=broken, kept=tuple(kept))
        left = [trial.candidate for trial in kept]
        if not left:
            return
