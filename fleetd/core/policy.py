"""The policy: what a site wants done about what is found. Frozen data, and how a rule matches.

The dataclasses here and in `limits` are the schema of `policies/*.yaml`: a field is a key.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from fnmatch import fnmatchcase

from fleetd.core.limits import (
    MAX_SECONDS,
    Budget,
    Budgets,
    Jobs,
    Outliers,
    Qualify,
    Repair,
    Returns,
    Share,
    Silence,
    Storm,
    above_zero,
)
from fleetd.model.finding import FaultClass, Scope, Severity, Verdict
from fleetd.model.ids import GpuId
from fleetd.model.order import Drain

__all__ = ["Budget", "Budgets", "Jobs", "Outliers", "Qualify", "Repair", "Returns", "Share", "Silence", "Storm"]

LEVELS = ("self", "smoke", "quick", "qualify", "burnin", "soak")
"""Burn-in levels from the weakest to the strongest: a pass proves its level and the weaker ones."""

MANUAL = "manual"
"""In place of a proof level: no burn-in proves this class cured, an operator decides."""

MAX_STRIKES_PER_GPU = 16
"""Strikes remembered for one GPU, the newest; no rule may ask for more."""

MAX_SIGHTINGS = 32
"""Device faults remembered for one host, the newest; no rule may count further."""

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
        above_zero(self, "within_seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """So many sightings of one device fault on one GPU (or on the host) in so much time, the present one included."""

    at_least: int
    within_seconds: float

    def __post_init__(self) -> None:
        if not 1 <= self.at_least <= MAX_SIGHTINGS:
            raise ValueError(f"at_least must be 1 to {MAX_SIGHTINGS}, not {self.at_least}")
        above_zero(self, "within_seconds")


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
    scope: tuple[Scope, ...] | None = None
    """Of a device fault: any of these."""
    pool: str | None = None
    """Of the host; `*` stands for any text, and a host whose pool is not known matches nothing but `*`."""
    sku: str | None = None
    """Of the accused GPU, or of any GPU of the host when none is accused; `*` stands for any text."""
    strikes: Strikes | None = None
    count: Count | None = None

    def __post_init__(self) -> None:
        if all(getattr(self, f.name) is None for f in fields(self)):
            raise ValueError("`when` needs at least one matcher")
        if self.fault_class is not None and not self.fault_class:
            raise ValueError("fault_class must name at least one class; leave it out to match all")
        if self.scope is not None and not self.scope:
            raise ValueError("scope must name at least one scope; leave it out to match all")
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
class Proof:
    """What proves a class of faults cured: a burn-in that passes, where asked for after a reboot."""

    level: str
    """A burn-in level, or `manual`."""
    after_reboot: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A site's policy."""

    qualify: Qualify
    requalify_after_reboot: bool = True
    """Whether a healthy host that comes back with another boot must qualify again before it counts as healthy."""
    proofs: Mapping[FaultClass, str | Proof]
    """Fault class → what must pass before its quarantine may end, or `manual`. A plain level is a proof at any time."""
    drains: Mapping[FaultClass, Drain] = field(default_factory=dict)
    """Fault class → how jobs leave a host that is quarantined for it; a class that is not named: at their end."""
    returns: Returns = Returns.OPERATOR
    """Whether the proof alone brings a host back, or an operator does."""
    probation_seconds: float = 0.0
    """How long a host that came back is watched before it counts as healthy."""
    tell_again_seconds: float = 3600.0
    """A human is told the same thing about the same host, budget or incident once in this time."""
    budgets: Budgets
    storm: Storm = field(default_factory=Storm)
    silence: Silence = field(default_factory=Silence)
    outliers: Outliers | None = None
    """None: GPUs are not compared with their siblings."""
    jobs: Jobs | None = None
    """None: jobs that fail accuse no host."""
    repair: Repair = field(default_factory=Repair)
    rules: tuple[Rule, ...]

    def __post_init__(self) -> None:
        for name in ("probation_seconds", "tell_again_seconds"):
            if not 0 <= getattr(self, name) <= MAX_SECONDS:
                raise ValueError(f"{name} must be from 0 to {MAX_SECONDS:g}, not {getattr(self, name):g}")

    def proof_of(self, fault_class: FaultClass) -> Proof | None:
        """What proves a class cured; None: an operator's decision only."""
        proof = self.proofs.get(fault_class, MANUAL)
        proof = Proof(level=proof) if isinstance(proof, str) else proof
        return None if proof.level == MANUAL else proof

    def drain_of(self, fault_classes: Iterable[FaultClass]) -> Drain:
        """How jobs leave a host that has all of these: the most urgent way of them."""
        ways = {self.drains.get(fault_class, Drain.JOB_END) for fault_class in fault_classes}
        return max(ways, key=list(Drain).index, default=Drain.JOB_END)


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
    """Times of the transient faults of this GPU on any host, this one included."""
    seen_at_s: tuple[float, ...] = ()
    """Times of the sightings of this device fault on this GPU (or host), this one included."""
    pool: str | None = None
    skus: tuple[str, ...] = ()
    """Of the accused GPU, or of all GPUs of the host when none is accused."""


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
        and (when.scope is None or accusation.scope in when.scope)
        and (when.pool in (None, "*") or (accusation.pool is not None and fnmatchcase(accusation.pool, when.pool)))
        and (when.sku in (None, "*") or any(fnmatchcase(sku, when.sku) for sku in accusation.skus))
        and (when.strikes is None or _often(when.strikes, accusation.at_s, accusation.strikes_at_s))
        and (when.count is None or _often(when.count, accusation.at_s, accusation.seen_at_s))
    )


def _often(asked: Strikes | Count, at_s: float, times_s: Iterable[float]) -> bool:
    # Distances in the finder's own time: findings that waited in a spool are judged by when they happened.
    return sum(abs(at_s - other_s) <= asked.within_seconds for other_s in times_s) >= asked.at_least


def covers(passed: str, asked: str) -> bool:
    """Whether a pass at one level proves another: the same one, or a weaker one of `LEVELS`."""
    return passed == asked or (passed in LEVELS and asked in LEVELS and LEVELS.index(passed) >= LEVELS.index(asked))


def strongest(levels: Iterable[str]) -> str:
    """The level that proves most; an unknown level counts as the weakest. Raises ValueError without levels."""
    return max(levels, key=lambda level: LEVELS.index(level) if level in LEVELS else -1)
