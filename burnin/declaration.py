"""What a test says of itself: the words of the table in `burnin.tests`. Torch-free."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from burnin.levels import IDLE, since

BACKENDS = ("cuda", "cpu", "sim")
"""Where tests run: real GPUs (NVIDIA, ROCm builds of torch), this host's CPU, GPUs simulated on the CPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much of a test one backend does."""

    launches: int
    """Launches of one ballot (one seed)."""
    rounds: int
    """Iterations (a new seed each) over all cases that are always done."""
    seconds: float = 0.0
    """Go on with new seeds until this much time has passed; 0 keeps the number of rounds fixed, so that the same
    `--seed` gives the same report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """What a test promises and needs."""

    id: str
    what: str
    workload: str | None
    """"module:Class" of its `burnin.workloads.Workload`; None for tests that the runner does itself."""
    exact: bool
    """Whether its cases have a golden, so that all GPUs of a host vote together."""
    efforts: Mapping[str, Effort]
    """Backend → effort. The test does not exist on backends that are missing here."""
    min_launches: int
    """Launches on each GPU below which there is no verdict; also of each case alone."""
    min_bytes: int
    """Checksummed bytes on each GPU below which there is no verdict."""
    max_seconds: float
    """No further iteration begins after this, and a single request that takes as long is a hang. Retests, whose number
    is fixed, come on top."""
    quiet_seconds: float
    """A child that says nothing for this long hangs (a first launch may compile and load libraries meanwhile)."""
    levels: frozenset[str]
    required: frozenset[str]
    """Backends on which a level that contains the test is not judged without it."""
    needs: str
    maturity: str
    """`stable` or `new`."""
    together: bool = False
    """Whether all GPUs work on it together, in processes that are joined (`burnin.collectives`)."""
    in_step: bool = False
    """Whether all GPUs begin each case at the same moment of the host's monotonic clock."""
    common: bool = True
    """Whether a test without a golden computes one round more, on inputs that all hosts share."""


def own(test: str, what: str, *, first: str, required: Iterable[str], needs: str) -> Declaration:
    """A test that the runner does itself, in every level from `first` on."""
    return Declaration(
        id=test,
        what=what,
        workload=None,
        exact=True,
        efforts={backend: Effort(launches=1, rounds=1) for backend in BACKENDS},
        min_launches=0,
        min_bytes=0,
        max_seconds=60.0,
        quiet_seconds=60.0,
        levels=since(first) | {IDLE},
        required=frozenset(required),
        needs=needs,
        maturity="new",
    )


def computed(
    test: str,
    what: str,
    workload: str,
    *,
    exact: bool,
    efforts: Mapping[str, Effort],
    first: str = "smoke",
    idle: bool = False,
    required: Iterable[str] | None = None,
    max_seconds: float = 120.0,
    quiet_seconds: float = 60.0,
    needs: str = "a GPU, or a CPU that stands in for it",
    together: bool = False,
    in_step: bool = False,
    common: bool = True,
) -> Declaration:
    """A test that a workload computes on every GPU, in every level from `first` on.

    Without `required`, no level that has it is judged without it on any backend on which it exists.
    """
    return Declaration(
        id=test,
        what=what,
        workload=workload,
        exact=exact,
        efforts=efforts,
        min_launches=min(effort.launches for effort in efforts.values()),
        min_bytes=1 << 12,
        max_seconds=max_seconds,
        quiet_seconds=quiet_seconds,
        levels=since(first) | ({IDLE} if idle else frozenset()),
        required=frozenset(efforts if required is None else required),
        needs=needs,
        maturity="new",
        together=together,
        in_step=in_step,
        common=common,
    )
