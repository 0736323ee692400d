"""What the observations of one checked step mean for one rank: a table, row by row. Pure and torch-free.

The first row that holds counts: what has an explanation outside of the arithmetic (state that changed, a collective
that went wrong) is explained before the arithmetic is suspected. A verdict *unknown* of software is information, no
alarm: what is compared was less reproducible than it seemed, and is compared no more. The letters are those of
`burnin.guard.seen`.
"""

from collections.abc import Callable
from dataclasses import dataclass

from burnin.guard.seen import Blame, Changed, Check, Decision, Rerun, Seen, Third, Vote
from burnin.spec import FaultClass

REPEATS_TO_BLAME = 3
"""So often must only this GPU fail to reproduce a step, with clean exact tests, before it is blamed nevertheless."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    name: str
    when: Callable[[Seen], bool]
    fault_class: FaultClass
    why: str
    blame: Blame = Blame.SELF
    check: Check = Check.BAD
    asks: tuple[str, ...] = ()
    redo: bool = False


_EXACT = ("gemm.exact", "gemm.vote")
_LINK = ("collective.exact", "copy")
_MEMORY = ("hbm", "collective.exact", "copy")


def _flaky(seen: Seen) -> bool:
    return seen.r1_is_o is False and seen.r2_is_r1 is False


def _shifted(seen: Seen) -> bool:
    return seen.r1_is_o is False and seen.r2_is_r1 is True


def _apart(seen: Seen) -> bool:
    """This rank repeats itself, its peer repeats itself, and they differ."""
    return seen.r1_is_o is True and seen.p1_is_o is False and seen.p2_is_p1 is True


ROWS = (
    # Before what is at rest: a link that has been wrong since the last check has let the replicas drift apart.
    _Row(
        name="collective, minority",
        when=lambda s: s.post is Vote.MINORITY,
        fault_class=FaultClass.LINK,
        asks=_LINK,
        redo=True,
        why="after the collective this rank has something else than the majority: link, copy or memory",
    ),
    _Row(
        name="state at rest, minority",
        when=lambda s: s.at_rest is Vote.MINORITY or s.decayed,
        fault_class=FaultClass.MEMORY,
        asks=_MEMORY,
        why="parameters or optimizer state changed at rest, or a collective went wrong in a step that was not checked",
    ),
    _Row(
        name="state at rest, undecided",
        when=lambda s: s.at_rest is Vote.SPLIT,
        fault_class=FaultClass.MEMORY,
        blame=Blame.NOBODY,
        check=Check.SUSPECT,
        asks=_MEMORY,
        why="replicas differ at rest, and there is no majority to say which is right",
    ),
    _Row(
        name="collective, undecided",
        when=lambda s: s.post is Vote.SPLIT,
        fault_class=FaultClass.LINK,
        blame=Blame.NOBODY,
        check=Check.SUSPECT,
        asks=_LINK,
        redo=True,
        why="ranks differ after the collective without a majority: collective.exact has to decide",
    ),
    _Row(
        name="collective, outside the bound",
        when=lambda s: s.rerun is Rerun.OUTSIDE,
        fault_class=FaultClass.LINK,
        blame=Blame.NOBODY,
        asks=_LINK,
        redo=True,
        why="the collective's sum lies outside the bound of any order of its terms: collective.exact has to say where",
    ),
    _Row(
        name="inputs changed",
        when=lambda s: s.r1_is_o is False and s.changed is Changed.INPUTS,
        fault_class=FaultClass.SOFTWARE_NONDETERMINISM,
        blame=Blame.NOBODY,
        check=Check.SUSPECT,
        why="the micro-batch changed during the step: a data loader that reuses its buffers",
    ),
    _Row(
        name="memory changed",
        when=lambda s: s.r1_is_o is False and s.changed is Changed.MEMORY,
        fault_class=FaultClass.MEMORY,
        asks=_MEMORY,
        why="parameters or buffers changed between the step and its replay",
    ),
    _Row(
        name="another rank's state changed",
        when=lambda s: s.r1_is_o is False and s.changed is Changed.ELSEWHERE,
        fault_class=FaultClass.NONE,
        blame=Blame.NOBODY,
        check=Check.UNKNOWN,
        why="what other ranks handed over changed between the step and its replay: judged where it changed",
    ),
    _Row(
        name="fleet-wide",
        when=lambda s: s.fleet_wide and (s.r1_is_o is False or s.p1_is_o is False),
        fault_class=FaultClass.SOFTWARE_NONDETERMINISM,
        blame=Blame.NOBODY,
        check=Check.UNKNOWN,
        why="many ranks or hosts do not repeat the step at once: chips do not fail alike, libraries do",
    ),
    _Row(
        name="shifted, operations not known",
        when=lambda s: _shifted(s) and not s.sound,
        fault_class=FaultClass.SOFTWARE_NONDETERMINISM,
        blame=Blame.NOBODY,
        check=Check.UNKNOWN,
        asks=_EXACT,
        why="replays agree and not with the original: a chip, or an operation that seldom differs and is not seen",
    ),
    _Row(
        name="transient",
        when=_shifted,
        fault_class=FaultClass.CHIP_TRANSIENT,
        asks=_EXACT,
        redo=True,
        why="all replays agree with each other and not with the original, whose inputs are unchanged",
    ),
    _Row(
        name="flaky, peers too",
        when=lambda s: _flaky(s) and s.p2_is_p1 is False,
        fault_class=FaultClass.SOFTWARE_NONDETERMINISM,
        blame=Blame.NOBODY,
        check=Check.UNKNOWN,
        why="neither this rank nor its peer repeats itself: bisect by operations",
    ),
    _Row(
        name="flaky, exact test fails",
        when=lambda s: _flaky(s) and s.exact is False,
        fault_class=FaultClass.CHIP_PERSISTENT,
        asks=_EXACT,
        redo=True,
        why="this rank does not repeat itself, and its integer products are wrong",
    ),
    _Row(
        name="flaky, again and alone",
        when=lambda s: _flaky(s) and s.sound and s.p2_is_p1 is True and s.alone + 1 >= REPEATS_TO_BLAME,
        fault_class=FaultClass.CHIP_TRANSIENT,
        check=Check.SUSPECT,
        asks=_EXACT,
        redo=True,
        why=f"only this GPU did not repeat itself, {REPEATS_TO_BLAME} times, though its exact test is clean",
    ),
    _Row(
        name="flaky, exact test clean",
        when=lambda s: _flaky(s) and s.exact is True,
        fault_class=FaultClass.SOFTWARE_NONDETERMINISM,
        blame=Blame.NOBODY,
        check=Check.UNKNOWN,
        why="this rank does not repeat itself, and its exact test is clean: software, unless only this GPU goes on so",
    ),
    _Row(
        name="flaky, not tested",
        when=_flaky,
        fault_class=FaultClass.SOFTWARE_NONDETERMINISM,
        blame=Blame.NOBODY,
        check=Check.UNKNOWN,
        asks=_EXACT,
        why="this rank does not repeat itself, and no exact test ran",
    ),
    _Row(
        name="apart, this one is wrong",
        when=lambda s: _apart(s) and s.exact is False and s.peer_exact is not False,
        fault_class=FaultClass.CHIP_PERSISTENT,
        asks=_EXACT,
        redo=True,
        why="this rank repeats what its peer does not get, and its integer products are wrong",
    ),
    _Row(
        name="apart, the peer is wrong",
        when=lambda s: _apart(s) and s.peer_exact is False and s.exact is not False,
        fault_class=FaultClass.CHIP_PERSISTENT,
        blame=Blame.PEER,
        asks=_EXACT,
        why="the peer repeats what this rank does not get, and the peer's integer products are wrong",
    ),
    _Row(
        name="apart, the third is with the peer",
        when=lambda s: _apart(s) and s.third is Third.PEER,
        fault_class=FaultClass.CHIP_PERSISTENT,
        asks=_EXACT,
        redo=True,
        why="this rank repeats what neither its peer nor a third rank gets",
    ),
    _Row(
        name="apart, the third is with this one",
        when=lambda s: _apart(s) and s.third is Third.SELF,
        fault_class=FaultClass.CHIP_PERSISTENT,
        blame=Blame.PEER,
        asks=_EXACT,
        why="the peer repeats what neither this rank nor a third one gets",
    ),
    _Row(
        name="apart, undecided",
        when=_apart,
        fault_class=FaultClass.CONFIGURATION,
        blame=Blame.NOBODY,
        check=Check.SUSPECT,
        asks=_EXACT,
        why="two ranks repeat themselves and differ, no third decides: other kernels chosen, or one chip is wrong",
    ),
    _Row(
        name="exact test fails",
        when=lambda s: s.exact is False,
        fault_class=FaultClass.CHIP_PERSISTENT,
        asks=_EXACT,
        why="this GPU's integer products are wrong, though the step repeats itself",
    ),
    _Row(
        name="the peer is flaky",
        when=lambda s: s.r1_is_o is True and s.p2_is_p1 is False and s.sound,
        fault_class=FaultClass.CHIP_TRANSIENT,
        blame=Blame.PEER,
        check=Check.SUSPECT,
        asks=_EXACT,
        why="this rank repeats itself and its peer does not",
    ),
    _Row(
        name="the peer differs, operations not known",
        when=lambda s: s.r1_is_o is True and s.p2_is_p1 is False,
        fault_class=FaultClass.SOFTWARE_NONDETERMINISM,
        blame=Blame.NOBODY,
        check=Check.UNKNOWN,
        asks=_EXACT,
        why="the peer does not repeat itself: its chip, or an operation that seldom differs and is not seen",
    ),
    _Row(
        name="collective, inside the bound",
        when=lambda s: s.rerun is Rerun.INSIDE,
        fault_class=FaultClass.COMM_NONDETERMINISM,
        blame=Blame.NOBODY,
        check=Check.SUSPECT,
        why="the collective gives another result each time, inside the bound of any order of its terms",
    ),
)
"""The table, in the order in which it is read."""

_CLEAN = Decision(
    row="clean",
    check=Check.OK,
    fault_class=FaultClass.NONE,
    blame=Blame.NOBODY,
    asks=(),
    redo=False,
    why="replays, peers and collectives agree",
)
_UNREPLAYED = Decision(
    row="not replayed",
    check=Check.UNKNOWN,
    fault_class=FaultClass.NONE,
    blame=Blame.NOBODY,
    asks=(),
    redo=False,
    why="the step was not replayed",
)
_HALF = Decision(
    row="half replayed",
    check=Check.UNKNOWN,
    fault_class=FaultClass.NONE,
    blame=Blame.NOBODY,
    asks=_EXACT,
    redo=False,
    why="something differs, and what would explain it could not be computed",
)


def decide(seen: Seen) -> Decision:
    """Return the decision of the first row that holds; pure."""
    for row in ROWS:
        if row.when(seen):
            return Decision(
                row=row.name,
                check=row.check,
                fault_class=row.fault_class,
                blame=row.blame,
                asks=row.asks,
                redo=row.redo,
                why=row.why,
            )
    if seen.r1_is_o is None:
        return _UNREPLAYED
    return _HALF if seen.r1_is_o is False or seen.p1_is_o is False else _CLEAN
