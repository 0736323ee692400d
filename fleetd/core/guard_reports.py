"""Which reports of a training job an agent takes. Pure.

A job is not trusted to take a host away: it may speak of the GPUs that it holds only, seldom, and what it says asks for
a test. Its fault class stays in the code; the finding itself accuses nothing, so that no rule can act on it but one
that is written for `sdc.*`.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from burnin.spec import GUARD_SCHEMA, FaultClass
from fleetd.model.ids import GpuId

PER_HOUR = 6
"""Reports about one GPU (or about none) that are taken in an hour."""
HOST_PER_HOUR = 24
_HOUR_S = 3600.0
_WHY_MAX = 300
_CLASSES = frozenset(f"sdc.{one}" for one in FaultClass if one is not FaultClass.NONE)
_CHECKS = frozenset({"suspect", "bad", "unknown"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a job says, checked."""

    code: str
    check: str
    gpu: GpuId | None
    rank: int | None
    step: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """When reports were taken, by GPU; monotonic seconds, of the last hour."""

    at_s: Mapping[GpuId | None, tuple[float, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """Whether a report is taken, and the state after it."""

    taken: Taken
    ok: bool
    gpu: GpuId | None
    """Which GPU the finding is about; None: the host's, it is not known which."""
    why: str


def parse(line: object) -> Report:
    """Read one JSON object. Raises ValueError with one line that says what is wrong."""
    if not isinstance(line, dict) or line.get("schema") != GUARD_SCHEMA:
        raise ValueError(f"schema is not {GUARD_SCHEMA}")
    code, check, gpu, rank, step, why = (line.get(key) for key in ("code", "check", "gpu", "rank", "step", "why"))
    if code not in _CLASSES or check not in _CHECKS:
        raise ValueError("code or check is none of those that the guard sends")
    if not isinstance(gpu, str | None) or not isinstance(rank, int | None):
        raise ValueError("gpu is text or null, rank a number or null")  # noqa: TRY004 - as much no report as the others
    if not isinstance(step, int) or not isinstance(why, str):
        raise ValueError("step is a number, why is text")  # noqa: TRY004
    said = "".join(one if one.isprintable() else " " for one in why)[:_WHY_MAX]
    return Report(code=code, check=check, gpu=None if gpu is None else GpuId(gpu), rank=rank, step=step, why=said)


def admit(taken: Taken, report: Report, *, held: Collection[GpuId], now_s: float) -> Admission:
    """Decide about one report.

    Args:
        taken: what was taken before.
        report: from `parse`.
        held: the GPUs whose device files the sender has open.
        now_s: monotonic.
    """
    if not held:
        return Admission(taken=taken, ok=False, gpu=None, why="the sender holds no GPU of this host")
    gpu = report.gpu
    if gpu is not None and gpu not in held:
        return Admission(taken=taken, ok=False, gpu=None, why=f"the sender does not hold GPU {gpu}")
    if gpu is None and len(held) == 1:
        gpu = next(iter(held))
    recent = {
        one: kept for one, times in taken.at_s.items() if (kept := tuple(t for t in times if now_s - t < _HOUR_S))
    }
    if len(recent.get(gpu, ())) >= PER_HOUR or sum(map(len, recent.values())) >= HOST_PER_HOUR:
        why = f"at most {PER_HOUR} reports an hour about one GPU and {HOST_PER_HOUR} about a host are taken"
        return Admission(taken=Taken(at_s=recent), ok=False, gpu=gpu, why=why)
    after = {**recent, gpu: (*recent.get(gpu, ()), now_s)}
    return Admission(taken=Taken(at_s=after), ok=True, gpu=gpu, why="taken: it asks for a test")
