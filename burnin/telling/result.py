"""What a run gathers while it goes on, and what it hands over in the end. Torch-free."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from burnin.options import Options
from burnin.parts.reading import PartError
from burnin.parts.shelf import every
from burnin.roofline.cases import Model
from burnin.schedule import Done
from burnin.spec import Device, Verdict
from burnin.tests import Declaration
from burnin.verdict.evidence import Death, Evidence
from burnin.verdict.judge import Judgement, judge
from burnin.verdict.rates import Expected, Held, held, nothing_expected, remarks, with_rates


@dataclass(frozen=True, slots=True, kw_only=True)
class NotRun:
    """A test of the level that did not run."""

    test: str
    why: str
    required: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Everything that a report is made of."""

    options: Options
    backend: str
    devices: tuple[Device, ...]
    started_at_s: float
    elapsed_s: float
    declarations: tuple[Declaration, ...]
    evidence: Evidence
    judgement: Judgement
    own: Mapping[str, tuple[Verdict, str]]
    """Verdict and reason of the tests that the runner did itself."""
    test_elapsed_s: Mapping[str, float]
    not_run: tuple[NotRun, ...]
    notes: tuple[str, ...]
    versions: Mapping[str, str]
    settings: tuple[Mapping[str, Any], ...] = ()
    """How each GPU was set before and after, see `burnin.verdict.settings.compared`; nothing where that is not read."""
    done: tuple[Done, ...] = ()
    """The slices of the schedule that ended."""
    held: tuple[Held, ...] = ()
    """The rates by which GPUs may be called slow, and what each was held against."""


@dataclass(slots=True)
class State:
    """What a run has gathered so far, so that a stopped run can still report."""

    backend: str
    devices: tuple[Device, ...] = ()
    evidence: Evidence = field(default_factory=lambda: Evidence(devices=(), cases={}, quotas={}))
    own: dict[str, tuple[Verdict, str]] = field(default_factory=dict)
    test_elapsed_s: dict[str, float] = field(default_factory=dict)
    not_run: list[NotRun] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    settings: list[dict[str, Any]] = field(default_factory=list)
    done: tuple[Done, ...] = ()
    aimed: dict[str, str] = field(default_factory=dict)
    """Test → how near a directed run came to the failure that it was to repeat, in words."""


def _note_missing(state: State, declaration: Declaration) -> None:
    """Record a test that left nothing behind; without a required one there is no verdict."""
    test, required = declaration.id, state.backend in declaration.required
    known = {missing.test for missing in state.not_run}
    if test not in known and test not in state.own and test not in state.test_elapsed_s:
        begun = any(cast.test == test for cast in state.evidence.casts)
        why = "the run ended in the middle of it" if begun else "the run ended before it"
        why = why if state.backend in declaration.efforts else f"it does not exist on {state.backend}"
        state.not_run.append(NotRun(test=test, why=why, required=required))
    for missing in state.not_run:
        if missing.test == test and missing.required and not state.gaps:
            state.gaps.append(f"the required test {test} did not run: {missing.why}")


def _expectations(state: State) -> Expected:
    """What is expected of the parts that are known; a damaged file costs the expectation, not the report."""
    if not any(case.slow_below for case in state.evidence.cases.values()):
        return nothing_expected  # no rate to hold against anything
    try:
        return Model(every())
    except PartError as error:
        state.notes.append(f"rate: {error}")
        return nothing_expected


def conclude(
    state: State,
    options: Options,
    declarations: tuple[Declaration, ...],
    *,
    deaths: tuple[Death, ...],
    started_at_s: float,
    elapsed_s: float,
) -> Result:
    """Judge what was gathered."""
    for declaration in declarations:
        _note_missing(state, declaration)
    evidence = replace(state.evidence, devices=state.devices, deaths=deaths, gaps=tuple(state.gaps))
    expected = _expectations(state)
    return Result(
        options=options,
        backend=state.backend,
        devices=state.devices,
        started_at_s=started_at_s,
        elapsed_s=elapsed_s,
        declarations=declarations,
        evidence=evidence,
        judgement=with_rates(judge(evidence), evidence, expected),
        own=state.own,
        test_elapsed_s=state.test_elapsed_s,
        not_run=tuple(state.not_run),
        notes=(*state.notes, *state.aimed.values(), *remarks(evidence, expected)),
        versions=state.versions,
        settings=tuple(state.settings),
        done=state.done,
        held=held(evidence, expected),
    )
