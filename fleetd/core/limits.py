"""The parts of a policy that bound automation: budgets, storms, silence, outliers, repairs. Frozen data, checked."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from fleetd.model.fleet import Area

MAX_SECONDS = 10 * 365 * 86400.0
"""Ten years, longer than hardware is kept: a longer time is a slip of the unit."""

MAX_JOB_FAILURES = 16
"""Failed jobs remembered of one host, the newest; no policy may ask for more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Qualify:
    """The burn-in that makes a host healthy."""

    level: str
    timeout_seconds: float
    """An agent must begin a burn-in within this time of its order, and report within it again after that."""
    attempts: int
    """Burn-ins in a row without a conclusion before a human is asked."""

    def __post_init__(self) -> None:
        above_zero(self, "timeout_seconds")
        if self.attempts < 1:
            raise ValueError(f"attempts must be at least 1, not {self.attempts}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """How many hosts of an area an automatic action may have at once."""

    max_ratio: float
    """Hosts that have it to hosts of the area, 0 to 1."""
    at_least: int
    """So many may have it however small the area is."""

    def __post_init__(self) -> None:
        if not 0 <= self.max_ratio <= 1:
            raise ValueError(f"max_ratio is a ratio from 0 to 1, not {self.max_ratio:g}")
        if self.at_least < 0:
            raise ValueError("at_least cannot be negative")

    def allowed(self, hosts: int) -> int:
        """How many of so many hosts may have it at once."""
        return max(self.at_least, int(self.max_ratio * hosts + 1e-9))  # 0.1 * 30 is 3 in spite of binary fractions


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget(Share):
    """A share, and how often the action may be ordered."""

    max_in_window: int
    """Orders within the window; an operator's quarantines count too."""
    window_seconds: float

    def __post_init__(self) -> None:
        Share.__post_init__(self)
        if self.max_in_window < 0:
            raise ValueError("max_in_window cannot be negative")
        above_zero(self, "window_seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgets:
    """What automatic action may cost. Releases and operators' own holds are never stopped."""

    quarantines: Budget
    """Of the whole fleet."""
    quarantines_by: Mapping[Area, Budget] = field(default_factory=dict)
    """Of each pool, rack, NVLink domain, power domain, SKU or job; hosts of which it is not known are not counted."""
    burnins: Share | None = None
    """Burn-ins on hosts that serve users, of the whole fleet; None: unlimited. One that does not fit waits."""

    def __post_init__(self) -> None:
        if Area.FLEET in self.quarantines_by:
            raise ValueError("quarantines_by.fleet: the fleet's budget is `quarantines`")


@dataclass(frozen=True, slots=True, kw_only=True)
class Storm:
    """When many hosts with the same fault are one incident and no host's own trouble."""

    hosts_at_least: int = 3
    within_seconds: float = 900.0

    def __post_init__(self) -> None:
        if not 2 <= self.hosts_at_least <= 64:  # noqa: PLR2004 - an incident lists at most 64 hosts
            raise ValueError(f"hosts_at_least must be 2 to 64, not {self.hosts_at_least}")
        above_zero(self, "within_seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """When a host whose agent is away is lost, and when rather the controller is cut off."""

    after_seconds: float = 300.0
    partition_at_least: int = 3
    partition_ratio: float = 0.2
    """So many hosts, and this share of the fleet, away at once: a partition, nobody is blamed."""

    def __post_init__(self) -> None:
        above_zero(self, "after_seconds")
        if self.partition_at_least < 2:  # noqa: PLR2004 - one silent host is no partition
            raise ValueError(f"partition_at_least must be at least 2, not {self.partition_at_least}")
        if not 0 <= self.partition_ratio <= 1:
            raise ValueError(f"partition_ratio is a ratio from 0 to 1, not {self.partition_ratio:g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outliers:
    """When a GPU that no threshold catches is too unlike its siblings of the same SKU and pool."""

    z_at_least: float = 6.0
    """Robust z-score; for normal readings 6 is one in a billion."""
    siblings_at_least: int = 16
    every_seconds: float = 60.0
    in_a_row: int = 10
    """Looks in which the GPU must be unlike its siblings: with `every_seconds`, the window."""
    burnin: str = "smoke"
    """The level that such a host must pass."""

    def __post_init__(self) -> None:
        above_zero(self, "z_at_least", "every_seconds")
        if self.siblings_at_least < 4:  # noqa: PLR2004 - a median of three says little
            raise ValueError(f"siblings_at_least must be at least 4, not {self.siblings_at_least}")
        if self.in_a_row < 1:
            raise ValueError(f"in_a_row must be at least 1, not {self.in_a_row}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Jobs:
    """When jobs that fail at once, one after the other, accuse the host: a dead GPU draws and kills a job a minute."""

    failures_at_least: int = 3
    """Different jobs that failed fast on the host within the window; one that failed elsewhere too does not count."""
    within_seconds: float = 3600.0
    ran_at_most_seconds: float = 300.0
    """A job that failed after a longer time was not killed by where it was started."""
    elsewhere_max_ratio: float = 0.25
    """Of the other hosts on which jobs ended within the window: if jobs fail fast on more, it is the jobs."""
    burnin: str = "smoke"
    """The level that such a host must pass."""

    def __post_init__(self) -> None:
        if not 2 <= self.failures_at_least <= MAX_JOB_FAILURES:  # noqa: PLR2004 - one failed job says nothing
            raise ValueError(f"failures_at_least must be 2 to {MAX_JOB_FAILURES}, not {self.failures_at_least}")
        if not 0 <= self.elsewhere_max_ratio <= 1:
            raise ValueError(f"elsewhere_max_ratio is a ratio from 0 to 1, not {self.elsewhere_max_ratio:g}")
        above_zero(self, "within_seconds", "ran_at_most_seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """What fleetd recommends for a condemned GPU, by how often its serial was condemned: reset, reboot, replace.

    The history of a serial follows it across hosts and slots.
    """

    resets: int = 1
    """So often a reset is worth a try."""
    reboots: int = 1
    """After the resets, so often a reboot; then the part is to be replaced."""
    window_seconds: float = 30 * 86400.0
    host_at_most: int = 6
    """Condemnations of one host within the window, whichever GPU it was; beyond them the host itself is suspected."""

    def __post_init__(self) -> None:
        above_zero(self, "window_seconds")
        for name, least in (("resets", 0), ("reboots", 0), ("host_at_most", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, not {getattr(self, name)}")


class Returns(StrEnum):
    """How a host whose holds are all proven cured comes back."""

    OPERATOR = "operator"
    AUTOMATIC = "automatic"


def above_zero(limits: object, *names: str) -> None:
    """Refuse a limit that is not above 0, or is a time that nobody can mean. Raises ValueError."""
    for name in names:
        value = getattr(limits, name)
        if not value > 0:
            raise ValueError(f"{name} must be above 0, not {value:g}")
        if name.endswith("_seconds") and value > MAX_SECONDS:
            raise ValueError(f"{name} must be at most {MAX_SECONDS:g} (ten years), not {value:g}")
