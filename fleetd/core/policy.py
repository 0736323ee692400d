"""The policy: what a site wants done about what is found. Frozen data, and how a rule matches.

The dataclasses are the schema of `policies/*.yaml`: a field is a key. Later scopes (pool, rack, power domain, …) become
further optional matchers of `When` and further fields of `Budgets`; a policy of today stays valid.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from fnmatch import fnmatchcase

from fleetd.model.finding import FaultClass, Scope, Severity, Verdict
from fleetd.model.ids import GpuId

LEVELS = ("self", "smoke", "quick", "qualify", "burnin", "soak")
"""Burn-in levels from the weakest to the strongest: a pass proves its level and the weaker ones."""

MANUAL = "manual"
"""In place of a proof level: no burn-in proves this class cured, an operator decides."""

MAX_STRIKES_PER_GPU = 16
"""Strikes remembered for one GPU, the newest; no rule may ask for more."""

_CODE = re.compile(r"[A-Za-z0-9_.*-]+")


class FindingKind(StrEnum):
    """Which kind of finding a rule is about."""

    BURNIN = "burnin"
    DEVICE = "device"


class Stage(StrEnum):
    """How far a rule may go."""

    OBSERVE = "observe"
    """Record what would have been ordered."""
    RECOMMEND = "recommend"
    """Tell a human what would have been ordered."""
    ENFORCE = "enforce"
    """Order it."""


class Action(StrEnum):
    """What a rule does; `none` to `replace` from least to most, `notify` beside them."""

    NONE = "none"
    MONITOR = "monitor"
    RESTART_APP = "restart_app"
    RESET_GPU = "reset_gpu"
    REBOOT = "reboot"
    DRAIN = "drain"
    QUARANTINE = "quarantine"
    REPLACE = "replace"
    NOTIFY = "notify"


@dataclass(frozen=True, slots=True, kw_only=True)
class Burnin:
    """A rule's `then: {burnin: LEVEL}`: look again before anything is decided."""

    burnin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Strikes:
    """So many transient faults of one GPU in so much time, the present one included."""

    at_least: int
    within_seconds: float

    def __post_init__(self) -> None:
        if not 1 <= self.at_least <= MAX_STRIKES_PER_GPU:
            raise ValueError(f"at_least must be 1 to {MAX_STRIKES_PER_GPU}, not {self.at_least}")
        if self.within_seconds <= 0:
            raise ValueError(f"within_seconds must be above 0, not {self.within_seconds:g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class When:
    """The matchers of a rule. All that are given must match; one that is left out matches everything."""

    finding: FindingKind | None = None
    verdict: Verdict | None = None
    """Of a burn-in. Only failed ones reach the rules."""
    fault_class: tuple[FaultClass, ...] | None = None
    """Any of these."""
    code: str | None = None
    """Of a device fault; `*` stands for any text."""
    severity_at_least: Severity | None = None
    """Of a device fault."""
    strikes: Strikes | None = None

    def __post_init__(self) -> None:
        if all(getattr(self, f.name) is None for f in fields(self)):
            raise ValueError("`when` needs at least one matcher")
        if self.fault_class is not None and not self.fault_class:
            raise ValueError("fault_class must name at least one class; leave it out to match all")
        if self.code is not None and not _CODE.fullmatch(self.code):
            raise ValueError(f"code `{self.code}` may hold letters, digits, `_`, `.`, `-` and the wildcard `*` only")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """When a finding matches, then act, as far as the stage allows. The first rule that matches decides."""

    name: str
    when: When
    then: Action | Burnin
    stage: Stage = Stage.ENFORCE

    def __post_init__(self) -> None:
        if not self.name.strip():
            raise ValueError("a rule needs a name: it is quoted in every reason")


@dataclass(frozen=True, slots=True, kw_only=True)
class Qualify:
    """The burn-in that makes a host healthy."""

    level: str
    timeout_seconds: float
    """An agent must begin a burn-in within this time of its order, and report within it again after that."""
    attempts: int
    """Burn-ins in a row without a conclusion before a human is asked."""

    def __post_init__(self) -> None:
        if self.timeout_seconds <= 0:
            raise ValueError(f"timeout_seconds must be above 0, not {self.timeout_seconds:g}")
        if self.attempts < 1:
            raise ValueError(f"attempts must be at least 1, not {self.attempts}")


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineBudget:
    """How much of the fleet automatic quarantines may take. Releases and operators' holds are never stopped."""

    max_ratio: float
    """Hosts in quarantine to hosts known, 0 to 1."""
    at_least: int
    """So many hosts may be in quarantine however small the fleet is."""
    max_in_window: int
    """Quarantines ordered within the window, an operator's included."""
    window_seconds: float

    def __post_init__(self) -> None:
        if not 0 <= self.max_ratio <= 1:
            raise ValueError(f"max_ratio is a ratio from 0 to 1, not {self.max_ratio:g}")
        if self.at_least < 0 or self.max_in_window < 0:
            raise ValueError("at_least and max_in_window cannot be negative")
        if self.window_seconds <= 0:
            raise ValueError(f"window_seconds must be above 0, not {self.window_seconds:g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgets:
    """What automatic action may cost."""

    quarantines: QuarantineBudget


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A site's policy."""

    qualify: Qualify
    requalify_after_reboot: bool = True
    """Whether a healthy host that comes back with another boot must qualify again before it counts as healthy."""
    proofs: Mapping[FaultClass, str]
    """Fault class → level that must pass before its quarantine may end, or `manual`."""
    budgets: Budgets
    rules: tuple[Rule, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Accusation:
    """What the rules see: one thing said to be wrong, with one GPU, link or host."""

    kind: FindingKind
    fault_class: FaultClass
    gpu: GpuId | None
    index: int | None
    at_s: float
    why: str
    code: str | None
    """None for a burn-in."""
    scope: Scope | None
    """None for a burn-in."""
    severity: Severity | None
    """None for a burn-in."""
    strikes_at_s: tuple[float, ...]
    """Times of the transient faults of this GPU, this one included."""


def first_match(rules: Iterable[Rule], accusation: Accusation) -> Rule | None:
    """The rule that decides on an accusation; None when no rule is about it."""
    return next((rule for rule in rules if matches(rule.when, accusation)), None)


def matches(when: When, accusation: Accusation) -> bool:
    """Whether all matchers that are given match."""
    return (
        when.finding in (None, accusation.kind)
        and (when.verdict is None or (when.verdict is Verdict.FAIL and accusation.kind is FindingKind.BURNIN))
        and (when.fault_class is None or accusation.fault_class in when.fault_class)
        and (when.code is None or (accusation.code is not None and fnmatchcase(accusation.code, when.code)))
        and (
            when.severity_at_least is None
            or (accusation.severity is not None and accusation.severity >= when.severity_at_least)
        )
        and (when.strikes is None or _struck(when.strikes, accusation))
    )


def _struck(asked: Strikes, accusation: Accusation) -> bool:
    # Distances in the finder's own time: findings that waited in a spool are judged by when they happened.
    near = sum(abs(accusation.at_s - at_s) <= asked.within_seconds for at_s in accusation.strikes_at_s)
    return near >= asked.at_least


def covers(passed: str, asked: str) -> bool:
    """Whether a pass at one level proves another: the same one, or a weaker one of `LEVELS`."""
    return passed == asked or (passed in LEVELS and asked in LEVELS and LEVELS.index(passed) >= LEVELS.index(asked))


def strongest(levels: Iterable[str]) -> str:
    """The level that proves most; an unknown level counts as the weakest. Raises ValueError without levels."""
    return max(levels, key=lambda level: LEVELS.index(level) if level in LEVELS else -1)
