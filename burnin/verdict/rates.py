"""Which GPUs are slow: their best rates against the host's median, and against what is expected. Pure, torch-free.

A GPU is compared with others of its vote key only, at least three of them, itself among them. Its best ballot counts:
one that was interrupted says nothing. A part for which nothing is expected is never slow against nothing, and an
expectation blames nobody within its own error.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import median
from typing import Protocol

from burnin.spec import Case, Device, FaultClass, Verdict
from burnin.verdict.evidence import Evidence
from burnin.verdict.health import Felt, together
from burnin.verdict.judge import Judgement

MIN_GPUS = 3
"""Of two that differ, nobody can say which one is slow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What a healthy part reaches in a case."""

    rate: float | None
    """Work a second, in the unit of the case; None: nothing can be expected, and `why` says so."""
    error: float
    """By which the expectation was wrong in one of ten shapes it had not seen: no GPU is blamed within that."""
    why: str
    """What bounds it, or why there is none."""


class Expected(Protocol):
    """What a healthy part reaches."""

    def __call__(self, device: Device, case: Case, felt: Felt) -> Expectation:
        """Of a case on a device that felt this meanwhile: its power limit decides its clock."""


def nothing_expected(device: Device, case: Case, felt: Felt) -> Expectation:
    """No expectation for any part."""
    del case, felt
    return Expectation(rate=None, error=0.0, why=f"no constants for this part ({device.sku})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Slow:
    """One GPU that is slow in one case."""

    gpu: str
    test: str
    case: str
    share: float
    """Of what it is held against."""
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """The best rate of one GPU in one case, and what it is held against."""

    gpu: str
    case: Case
    rate: float
    """Work a second, in the unit of the case."""
    peers: int
    """GPUs of its vote key that were measured, itself among them."""
    median: float | None
    """Of those; None: fewer than `MIN_GPUS`."""
    expected: Expectation


def held(evidence: Evidence, expected: Expected = nothing_expected) -> tuple[Held, ...]:
    """Every GPU in every case by which it may be judged, case after case."""
    devices = {device.gpu: device for device in evidence.devices}
    found = []
    for at, rates in _best(evidence).items():
        for gpu, rate in rates.items():
            peers = [other for one, other in rates.items() if devices[one].vote_key == devices[gpu].vote_key]
            found.append(
                Held(
                    gpu=gpu,
                    case=evidence.cases[at],
                    rate=rate,
                    peers=len(peers),
                    median=median(peers) if len(peers) >= MIN_GPUS else None,
                    expected=expected(devices[gpu], evidence.cases[at], _of(evidence, at[0], gpu)),
                )
            )
    return tuple(found)


def slow(evidence: Evidence, expected: Expected = nothing_expected) -> tuple[Slow, ...]:
    """Every slow GPU once, by the case in which it falls short most."""
    worst: dict[str, Slow] = {}
    for one in held(evidence, expected):
        gpu, test, name, model = one.gpu, one.case.test, one.case.name, one.expected
        against = [(one.median, f"the median of {one.peers} GPUs", 0.0)] if one.median is not None else []
        if model.rate is not None:
            words = f"the {model.rate:.3g} that this part is expected to reach ({model.why})"
            against.append((model.rate, words, model.error))
        for reference, words, error in against:
            share = one.rate / reference
            if share < one.case.slow_below * (1.0 - error) and share < (worst[gpu].share if gpu in worst else 1.0):
                why = f"{test} {name}: {one.rate:.3g} a second, {share:.2f} of {words}; {_felt(evidence, test, gpu)}"
                worst[gpu] = Slow(gpu=gpu, test=test, case=name, share=share, why=why)
    return tuple(worst[device.gpu] for device in evidence.devices if device.gpu in worst)


def _of(evidence: Evidence, test: str, gpu: str) -> Felt:
    """What a GPU felt in a test."""
    return together([cast.felt for cast in evidence.casts if cast.test == test and cast.felt and cast.gpu == gpu])


def _best(evidence: Evidence) -> Mapping[tuple[str, str], Mapping[str, float]]:
    """(test, case) → GPU → its best rate, of the cases by which a GPU may be judged."""
    found: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for cast in evidence.casts:
        ballot, at = cast.ballot, (cast.test, cast.ballot.case)
        if evidence.cases[at].slow_below and ballot.elapsed_s > 0 and ballot.flops > 0:
            rate = ballot.flops / ballot.elapsed_s
            found[at][cast.gpu] = max(rate, found[at].get(cast.gpu, 0.0))
    return found


def _felt(evidence: Evidence, test: str, gpu: str) -> str:
    """What may hold a GPU back, beside the others."""
    casts = [cast for cast in evidence.casts if cast.test == test]
    felt = _of(evidence, test, gpu)
    others = together([cast.felt for cast in casts if cast.felt is not None and cast.gpu != gpu])
    parts = []
    for mine, theirs, scale, unit in (
        (felt.sm_clock_hertz, others.sm_clock_hertz, 1e6, "MHz"),
        (felt.power_watts, others.power_watts, 1.0, "W"),
        (felt.temperature_celsius, others.temperature_celsius, 1.0, "°C"),
    ):
        if mine is not None:
            beside = f" (others {theirs.mean / scale:.0f})" if theirs is not None else ""
            parts.append(f"{mine.mean / scale:.0f} {unit}{beside}")
    if felt.power_limit_watts is not None:
        parts.append(f"its power limit is {felt.power_limit_watts:.0f} W")
    only = [limit for limit in felt.limits if limit not in others.limits]
    parts += [f"held back by {', '.join(only or felt.limits)}"] if felt.limits else []
    return ", ".join(parts) or "its clock, power and temperature cannot be read here"


def remarks(evidence: Evidence, expected: Expected = nothing_expected) -> tuple[str, ...]:
    """What the rates were not held against."""
    rated = _best(evidence).keys()
    if not rated:
        return ()
    told = []
    sizes: dict[str, int] = defaultdict(int)
    for device in evidence.devices:
        sizes[device.vote_key] += 1
    if min(sizes.values()) < MIN_GPUS:
        told.append(f"rate: fewer than {MIN_GPUS} GPUs of a kind: their rates are told, not compared")
    missing: dict[str, None] = {}
    for device in evidence.devices:
        asked = [expected(device, evidence.cases[at], _of(evidence, at[0], device.gpu)) for at in rated]
        if all(one.rate is None for one in asked):
            missing |= dict.fromkeys([asked[0].why])
    told += [f"rate: no expectation: {why}: a host that is slow as a whole is not seen" for why in missing]
    return tuple(told)


def with_rates(judgement: Judgement, evidence: Evidence, expected: Expected = nothing_expected) -> Judgement:
    """The verdict with the slow GPUs in it; what else is known of a GPU weighs more, and gaps leave it as it is."""
    found = {} if evidence.gaps else {one.gpu: one for one in slow(evidence, expected)}
    gpus = tuple(
        replace(gpu, verdict=Verdict.FAIL, fault=FaultClass.SLOW, why=found[gpu.gpu].why)
        if gpu.gpu in found and gpu.verdict is not Verdict.FAIL
        else gpu
        for gpu in judgement.gpus
    )
    index = {device.gpu: device.index for device in evidence.devices}
    new = [gpu for gpu in gpus if gpu.fault is FaultClass.SLOW]
    if not new:
        return judgement
    first = {found[gpu.gpu].test: found[gpu.gpu].why for gpu in reversed(new)}
    tests = tuple(
        replace(test, verdict=Verdict.FAIL, why=first[test.test])
        if test.test in first and test.verdict is Verdict.PASS
        else test
        for test in judgement.tests
    )
    before = [judgement.why] if judgement.verdict is Verdict.FAIL else []
    why = "; ".join(before + [f"GPU {index[gpu.gpu]} ({gpu.gpu}): {gpu.fault}: {gpu.why}" for gpu in new])
    return replace(judgement, verdict=Verdict.FAIL, why=why, gpus=gpus, tests=tests)
