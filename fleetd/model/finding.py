"""Findings: rare, durable facts that travel from a host to the controller exactly once in effect."""

from dataclasses import dataclass
from enum import IntEnum, StrEnum

from fleetd.model.ids import BootId, FindingId, GpuId, HostName, OrderId


class Severity(IntEnum):
    """How bad a finding is; comparable, `info < warning < error < fatal`."""

    INFO = 0
    WARNING = 1
    ERROR = 2
    FATAL = 3


class Scope(StrEnum):
    """How far a fault reaches. `hive` is the set of GPUs that reset together."""

    APP = "app"
    GPU = "gpu"
    LINK = "link"
    HIVE = "hive"
    HOST = "host"
    FABRIC = "fabric"


class Verdict(StrEnum):
    """Verdict of a run, of a test in it and of a GPU in it."""

    PASS = "pass"  # noqa: S105 - a verdict, not a password
    FAIL = "fail"
    NOT_JUDGED = "not_judged"


class FaultClass(StrEnum):
    """What kind of thing is wrong."""

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

    @property
    def is_hardware(self) -> bool:
        """Whether a finding of this class may ask for a quarantine by itself."""
        return self in _HARDWARE


_HARDWARE = frozenset(
    {
        FaultClass.CHIP_PERSISTENT,
        FaultClass.CHIP_TRANSIENT,
        FaultClass.MEMORY,
        FaultClass.LINK,
        FaultClass.UNRESPONSIVE,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Culprit:
    """One GPU that a burn-in run blames."""

    gpu: GpuId
    index: int
    """Position on this host at the time of the run; a label, never an identity."""
    fault_class: FaultClass
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ballot:
    """What all GPUs of a host computed alike in one test of a run, to be compared with other hosts."""

    key: str
    """Equal where the results must be equal bit by bit: made of the vote key, the test, its case and its seed."""
    fingerprint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BurninEnded:
    """A burn-in run ended on a host: evidence against its culprits, or proof for the host if it passed."""

    id: FindingId
    host: HostName
    boot_id: BootId
    at_s: float
    """Wall time, seconds since the epoch."""
    why: str
    """One sentence for the operator."""
    order_id: OrderId | None
    """The order that asked for the run; None when the host started it by itself."""
    level: str
    verdict: Verdict
    fault_class: FaultClass
    """The worst class of the run: a host-wide class (`configuration`, …) has no culprit. `none` when it passed."""
    seed: int
    vote_key: str
    culprits: tuple[Culprit, ...]
    ballots: tuple[Ballot, ...] = ()
    """Empty when the agent sends none, or the host's GPUs did not agree."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFault:
    """Something is wrong with a GPU, a link or the host, seen by the agent itself (counters, kernel log, driver)."""

    id: FindingId
    host: HostName
    boot_id: BootId
    at_s: float
    """Wall time, seconds since the epoch."""
    why: str
    """One sentence for the operator."""
    code: str
    """Entry of the fault catalogue, such as `nvidia.xid.79`, or one of the two below."""
    gpu: GpuId | None
    """None when the fault is the host's, or its GPU is not known."""
    index: int | None
    scope: Scope
    severity: Severity
    fault_class: FaultClass


DRIVER_UNRESPONSIVE = "agent.driver_unresponsive"
"""Code of a silence: the vendor's library or driver does not answer, for one GPU or (without `gpu`) at all."""
DRIVER_MISSING = "agent.driver_missing"
"""Code of the same when there is no library or driver to ask: a matter of installation, no GPU is suspected."""
SILENCES = frozenset({DRIVER_UNRESPONSIVE, DRIVER_MISSING})

Finding = BurninEnded | DeviceFault
