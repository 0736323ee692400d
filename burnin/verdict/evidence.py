"""What a run knows: every ballot, proof, death and counter, with who said it. Pure, torch-free; `judge` reads it."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from burnin.spec import Ballot, Case, Device, Elements, Inject, Proof
from burnin.verdict.health import Felt


@dataclass(frozen=True, slots=True, kw_only=True)
class Cast:
    """A ballot and who cast it."""

    gpu: str
    test: str
    ballot: Ballot
    retest: bool = False
    """Whether it repeats a case because somebody was wrong in it."""
    felt: Felt | None = None
    """What the GPU felt during the launches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A proof and on which GPU its result was computed."""

    gpu: str
    test: str
    proof: Proof
    retest: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """A wrong result that was computed again, and which of its elements are wrong."""

    gpu: str
    test: str
    case: str
    seed: int
    elements: Elements


class DeathKind(StrEnum):
    """How a child process ended before its time. A wrong result is neither."""

    CRASH = "crash"
    HANG = "hang"
    LOST = "lost"
    """It could not go on because another process of its gang ended or stayed away; says nothing of its own GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """A child process that crashed, or was ended because it said nothing for too long."""

    gpu: str
    test: str
    kind: DeathKind
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Injury:
    """A health counter says that the GPU is bad, whatever its results were."""

    gpu: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """Work on each GPU below which a test has no verdict."""

    min_launches: int
    """Of the test, and of each of its cases that was begun."""
    min_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everything that a verdict may rest on."""

    devices: tuple[Device, ...]
    cases: Mapping[tuple[str, str], Case]
    """(test, case name) → case."""
    quotas: Mapping[str, Quota]
    """Test that had to run → how much work it takes to judge by it."""
    casts: tuple[Cast, ...] = ()
    proofs: tuple[Shown, ...] = ()
    examined: tuple[Examined, ...] = ()
    """For the signatures; no verdict rests on it."""
    deaths: tuple[Death, ...] = ()
    injuries: tuple[Injury, ...] = ()
    injected: tuple[Inject, ...] = ()
    """Faults that the user planted."""
    cores: tuple[int, ...] = ()
    """Cores of the host's CPU that can be asked alone for a second opinion; empty: there are not two."""
    host_cpu: str = ""
    """Why the host's CPU cannot be trusted; empty when nothing speaks against it."""
    gaps: tuple[str, ...] = ()
    """Why the run as a whole cannot be judged: a missed self-test, an interruption, a required test not run."""

    def plus(
        self,
        *,
        casts: tuple[Cast, ...] = (),
        proofs: tuple[Shown, ...] = (),
        examined: tuple[Examined, ...] = (),
    ) -> "Evidence":
        """The evidence with more of it."""
        return replace(self, casts=self.casts + casts, proofs=self.proofs + proofs, examined=self.examined + examined)


def too_little(evidence: Evidence) -> list[tuple[str, str, str]]:
    """(GPU, test, why) for every GPU that did less of a required test, or of one case in it, than is asked for.

    A ballot whose launches do not count leaves its case open, however much of others there is.
    """
    work: Counter[tuple[str, str, str]] = Counter()
    cases: Counter[tuple[str, str, str]] = Counter()
    found = []
    for cast in evidence.casts:
        work[cast.gpu, cast.test, "launches"] += cast.ballot.launches
        work[cast.gpu, cast.test, "bytes"] += cast.ballot.bytes
        cases[cast.gpu, cast.test, cast.ballot.case] += cast.ballot.launches
        if not cast.ballot.launches:
            why = f"{cast.ballot.case}: {cast.ballot.made} launches that do not count: not all of the GPU took part"
            found.append((cast.gpu, cast.test, why))
    for test, quota in evidence.quotas.items():
        for device in evidence.devices:
            launches, size = work[device.gpu, test, "launches"], work[device.gpu, test, "bytes"]
            if launches < quota.min_launches or size < quota.min_bytes:
                found.append((device.gpu, test, f"too little work: {launches} launches, {size} bytes checked"))
    for (gpu, test, case), launches in cases.items():
        if test in evidence.quotas and 0 < launches < evidence.quotas[test].min_launches:
            found.append((gpu, test, f"too little work: {launches} launches of {case}"))
    return found
