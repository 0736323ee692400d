"""From the burn-in's JSON report to a finding: what the agent reads of it, and what it does not believe. Pure."""

import msgspec

from burnin.spec import SCHEMA
from fleetd.model.finding import Ballot, BurninEnded, Culprit, FaultClass, Verdict
from fleetd.model.ids import BootId, FindingId, GpuId
from fleetd.model.order import RunBurnin

REPORT_BYTES_MAX = 8 << 20
"""A report of eight GPUs has about 100 KB; more than this is none."""
_CULPRITS_MAX = 256
_BALLOTS_MAX = 64
_WHY_CHARS_MAX = 2000

_WORST_FIRST = (
    FaultClass.CHIP_PERSISTENT,
    FaultClass.MEMORY,
    FaultClass.LINK,
    FaultClass.UNRESPONSIVE,
    FaultClass.CHIP_TRANSIENT,
    FaultClass.CONFIGURATION,
    FaultClass.COMM_NONDETERMINISM,
    FaultClass.SOFTWARE_NONDETERMINISM,
    FaultClass.SLOW,
    FaultClass.NONE,
)


class ReportError(ValueError):
    """The report is unreadable, or contradicts itself or the order; one line."""


class _Culprit(msgspec.Struct, frozen=True, kw_only=True):
    gpu: str
    index: int
    fault_class: FaultClass = msgspec.field(name="class")
    why: str


class _Test(msgspec.Struct, frozen=True, kw_only=True):
    fault_class: FaultClass = msgspec.field(name="class", default=FaultClass.NONE)


class _Ballot(msgspec.Struct, frozen=True, kw_only=True):
    key: str
    fingerprint: str


class _Report(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of the report that matter to a finding; `burnin` writes more."""

    schema: str
    verdict: Verdict
    level: str
    seed: int
    vote_key: str
    culprits: list[_Culprit]
    why: str = ""
    fault_class: FaultClass = msgspec.field(name="class", default=FaultClass.NONE)
    tests: list[_Test] = []
    ballots: list[_Ballot] = []
    """What all GPUs of the host agreed on; an older burn-in writes none."""


def judged(order: RunBurnin, report: bytes, *, at_s: float) -> BurninEnded:
    """The finding of a burn-in that left a report. Raises ReportError when the report cannot be believed."""
    try:
        read = msgspec.json.decode(report, type=_Report)
    except msgspec.MsgspecError as error:
        raise ReportError(f"the report is unreadable: {error}") from error
    _believe(order, read)
    culprits = tuple(
        Culprit(gpu=GpuId(c.gpu), index=c.index, fault_class=c.fault_class, why=c.why[:_WHY_CHARS_MAX])
        for c in read.culprits
    )
    why = read.why or _sentence(read)
    return _ended(
        order, at_s=at_s, why=why, verdict=read.verdict, fault_class=_worst(read), report=read, culprits=culprits
    )


def not_judged(order: RunBurnin, why: str, *, at_s: float) -> BurninEnded:
    """The finding of a burn-in that says nothing about the host."""
    return _ended(order, at_s=at_s, why=why, verdict=Verdict.NOT_JUDGED, fault_class=FaultClass.NONE)


def _ended(
    order: RunBurnin,
    *,
    at_s: float,
    why: str,
    verdict: Verdict,
    fault_class: FaultClass,
    report: _Report | None = None,
    culprits: tuple[Culprit, ...] = (),
) -> BurninEnded:
    return BurninEnded(
        # One order has one end: told again after a restart, it is the same fact.
        id=FindingId(f"{order.id}/ended"),
        host=order.host,
        boot_id=BootId(order.boot_id),
        at_s=at_s,
        why=why[:_WHY_CHARS_MAX],
        order_id=order.id,
        level=order.level,
        verdict=verdict,
        fault_class=fault_class,
        seed=report.seed if report else 0,
        vote_key=report.vote_key if report else "",
        culprits=culprits,
        ballots=tuple(Ballot(key=b.key, fingerprint=b.fingerprint) for b in (report.ballots if report else ())),
    )


def _believe(order: RunBurnin, read: _Report) -> None:
    if read.schema != SCHEMA:
        raise ReportError(f"the report has schema {read.schema!r}, not {SCHEMA!r}: agent and burn-in do not match")
    if read.level != order.level:
        raise ReportError(f"the report is about level {read.level!r}, level {order.level!r} was ordered")
    if len(read.culprits) > _CULPRITS_MAX:
        raise ReportError(f"the report names {len(read.culprits)} culprits")
    if len(read.ballots) > _BALLOTS_MAX:
        raise ReportError(f"the report has {len(read.ballots)} ballots")
    if read.culprits and read.verdict is not Verdict.FAIL:
        raise ReportError(f"the report names culprits, and yet its verdict is {read.verdict}")
    if any(culprit.fault_class is FaultClass.NONE for culprit in read.culprits):
        raise ReportError("the report names a culprit of class none")


def _worst(read: _Report) -> FaultClass:
    if read.verdict is not Verdict.FAIL:
        return FaultClass.NONE
    classes = {read.fault_class, *(c.fault_class for c in read.culprits), *(test.fault_class for test in read.tests)}
    worst = next(fault_class for fault_class in _WORST_FIRST if fault_class in classes)
    # A run that fails and blames no GPU blames what they have in common.
    return FaultClass.CONFIGURATION if worst is FaultClass.NONE else worst


def _sentence(read: _Report) -> str:
    if read.culprits:
        return "; ".join(f"GPU {c.index} ({c.fault_class}): {c.why}" for c in read.culprits)
    return f"burn-in {read.level}: {read.verdict}"
