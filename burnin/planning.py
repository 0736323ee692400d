"""The plan of a run: from what is asked, and what there is here, to what the schedule needs. Pure, torch-free."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from burnin.levels import LEVELS, SELF, SLICE_MAX_S, TURNS_MIN, retention_seconds
from burnin.options import Options
from burnin.schedule import Plan
from burnin.spec import Case

CYCLE = "thermal"
"""The test that is a cold/hot cycle."""
NO_TURNS = (CYCLE, "pulse")
"""Tests that take no turns: a cycle has moments of its own, and the whole host's power in phase is drawn once."""
AGAIN = "selftest"
"""What fills the time of a level without tests of its own: further planted faults."""


END_S, END_RATIO = 2.0, 0.05
"""What a run does after its last slice: counters, letting GPUs go, looking how they are set; at most this, and at most
this share of its time."""


def fills(options: Options, backend: str) -> bool:
    """Whether a run takes turns until its time is over.

    Tests that were named, and short levels on stand-ins for GPUs, are done once: what they give depends on the seed
    alone.
    """
    if options.seconds is not None:
        return True
    return not options.tests and (backend == "cuda" or LEVELS[options.level].long)


def seconds_of(options: Options) -> float:
    """How long the run is to take, if it fills its time."""
    return LEVELS[options.level].seconds if options.seconds is None else options.seconds


def hard_seconds(options: Options, backend: str) -> float | None:
    """After how long the run is ended whatever it is doing; None: not at all."""
    level = LEVELS[options.level]
    if backend != "cuda" or options.tests or options.seconds is not None:
        return None
    return level.hard_seconds


def retention_of(options: Options, backend: str) -> float:
    """How long memory must hold its data, in seconds."""
    if options.retention_s or options.tests:
        return options.retention_s
    return retention_seconds(LEVELS[options.level], backend=backend, seconds=seconds_of(options))


def cases_of(options: Options, backend: str, cases: Mapping[str, tuple[Case, ...]]) -> dict[str, tuple[Case, ...]]:
    """The cases of each test that belong to the level; see `burnin.levels.Level.small`."""
    small = LEVELS[options.level].small if backend == "cuda" and not options.tests else {}
    return {
        test: tuple(case for case in all_ if fnmatchcase(case.name, small.get(test, "*")))
        for test, all_ in cases.items()
    }


def plan_of(options: Options, backend: str, tests: Sequence[str]) -> Plan:
    """The plan of a run.

    Args:
        options: what is asked.
        backend: on what.
        tests: of the run that have cases here, in the order of the table.
    """
    level, seconds = LEVELS[options.level], seconds_of(options)
    turns: tuple[str, ...] = ()
    if fills(options, backend):
        turns = tuple(test for test in tests if test not in NO_TURNS)
        turns = turns or ((AGAIN,) if options.level == SELF and not options.tests else ())
    cycles = level.cycles if not options.tests else 0
    return Plan(
        once=tuple(tests),
        turns=turns,
        seconds=seconds - (min(END_S, END_RATIO * seconds) if backend == "cuda" else 0.0),
        slice_seconds=min(SLICE_MAX_S, seconds / TURNS_MIN),
        seed=options.seed,
        cycle=CYCLE if turns and CYCLE in tests else "",
        cycles=cycles,
        like=tuple(test for test in tests if turns and any(aim.test == test for aim in options.like)),
    )
