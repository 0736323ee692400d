"""The words of burn-in: exit codes, verdicts, fault classes, what a test declares, what is injected, what a child says.

Torch-free: `fleetd` imports this module. Dataclasses cross the boundary between processes as JSON lines.
"""

from dataclasses import dataclass
from enum import IntEnum, StrEnum

SCHEMA = "fleetd.burnin.report/1"
"""Value of `schema` in the JSON report; the number grows when a consumer would have to change."""


class ExitCode(IntEnum):
    """Exit codes of `python -m burnin` and `fleetd burnin run`."""

    GOOD = 0
    BAD = 1
    USAGE = 2
    NOT_JUDGED = 3


class Verdict(StrEnum):
    """Verdict of a run, of a test in it and of a GPU in it."""

    PASS = "pass"  # noqa: S105 - a verdict, not a password
    FAIL = "fail"
    NOT_JUDGED = "not_judged"


class FaultClass(StrEnum):
    """What kind of thing is wrong; the first four and `unresponsive` are hardware."""

    CHIP_PERSISTENT = "chip-persistent"
    CHIP_TRANSIENT = "chip-transient"
    MEMORY = "memory"
    LINK = "link"
    COMM_NONDETERMINISM = "comm-nondeterminism"
    SOFTWARE_NONDETERMINISM = "software-nondeterminism"
    CONFIGURATION = "configuration"
    SLOW = "slow"
    UNRESPONSIVE = "unresponsive"
    NONE = "none"


class SpecError(ValueError):
    """The user asked for something that does not exist or cannot work; one line, exit code 2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One GPU (or its stand-in) as a run addresses it."""

    gpu: str
    """UUID or serial."""
    index: int
    """Position on this host."""
    sku: str
    sm_count: int
    memory_bytes: int
    vote_key: str
    """Digest of what must be equal for float results to be comparable (see `burnin.vote`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inject:
    """A fault to plant, for demonstrations and self-tests: `gpu=5,fault=F03[,rate=0.01][,seed=7]`."""

    gpu: int
    """Index of the GPU on this host."""
    fault: str
    """A fault model of the table in `burnin.inject`, such as `F03`."""
    rate: float
    """Probability that a launch is hit; 1: every launch."""
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One shape, dtype and code path of a test. All GPUs of a run vote on the same cases."""

    test: str
    name: str
    """Unique within the test, stable, readable: `bf16 library 4096x14336x4096`."""
    dtype: str
    exact: bool
    """Whether the result is order-free (integers inside the accumulator's range), so that it has a golden."""
    rate_name: str
    """Key of this case in the report's `rates`, with its unit: `gemm_bf16_library_flops_per_second`."""
    flops: int = 0
    """Work of one launch, by which the self-test chooses a small case; 0 where it is not known."""
    missing: str = ""
    """Why the library here cannot compute it; such a case is listed and never asked for."""
    slow_below: float = 0.0
    """Share of the host's median rate below which a GPU is slow (`verdict.rates`); 0: its rate is never judged."""


GUARD_SCHEMA = "fleetd.guard.finding/1"
"""Value of `schema` in the lines that the training guard sends to the agent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardFinding:
    """What the training guard tells the agent of its host: one JSON object a line, these fields and `schema`.

    It is a job's word. It asks for tests; only their result counts against a GPU.
    """

    code: str
    """`sdc.` and the fault class."""
    check: str
    """`suspect`, `bad` or `unknown`."""
    fault_class: str
    gpu: str | None
    """UUID of the GPU in question; None: not known."""
    rank: int | None
    step: int
    why: str
    asks: tuple[str, ...]
    """Tests of burn-in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ballot:
    """What one GPU says about one iteration (one seed, many launches) of one case."""

    case: str
    iteration: int
    seed: int
    fingerprints: tuple[tuple[str, int], ...]
    """(checksum as 16 hex digits, launches that gave it), in order of first appearance; one entry on a sane GPU."""
    launches: int
    """Launches that count: all that were made, or none, when not all of what the test is about took part."""
    bytes: int
    """Bytes of results that were checksummed, in launches that count."""
    flops: int
    elapsed_s: float
    """Time of the measured launches only (no input making, no compilation)."""
    trace: tuple[tuple[str, str], ...] = ()
    """(operation, checksum) in order of execution, for tests that name the first operation that differs."""
    tiles: tuple[int, ...] = ()
    """Per-tile checksums of the last launch whose fingerprint differs from the first's (else of the first launch)."""
    fired: int = 0
    """Launches that an injected fault changed."""
    outside: int = 0
    """Launches whose result breaks the bound that every right result keeps, where the test has one."""
    facts: tuple[tuple[str, float], ...] = ()
    """(name with its unit, value): what else was measured, for the record; nobody is judged by it."""

    @property
    def made(self) -> int:
        """Launches that were made, whether they count or not."""
        return sum(count for _, count in self.fingerprints)


@dataclass(frozen=True, slots=True, kw_only=True)
class Elements:
    """Which elements of one wrong result are wrong, and in which bits: what tells one kind of fault from another."""

    count: int
    """Elements that differ from the right result, at least 1."""
    compared: int
    """Elements that were compared: all, or those of the tiles in question."""
    bits: tuple[tuple[int, int], ...]
    """(bit of an element, elements in which it is flipped), from the lowest bit; bits that are never flipped are left
    out."""
    period: int | None
    """Greatest common divisor of the distances between wrong elements, in elements of the row-major result; 1 means no
    period, None that a single element is wrong."""
    first: tuple[int, int]
    """(row, column) of the first wrong element that was found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """The golden of one (case, seed): this GPU's result, proved or refuted on the CPU."""

    case: str
    seed: int
    fingerprint: str | None
    """Checksum of the result that the CPU proved right; None when the CPU refuted it."""
    why: str
    core: int | None = None
    """The only core of the host's CPU that took part; None: any of them."""
