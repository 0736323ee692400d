"""The words of the decision table: what is observed of one rank in one checked step, and what is decided. Torch-free.

All comparisons are of reproducible tensors only. O is the original step; R1 and R2 are its replays on the same rank, P1
and P2 on a peer, T on a third rank. R2 stands for all replays after the first: it is one that differs from R1, if any.
"""

from dataclasses import dataclass
from enum import StrEnum

from burnin.spec import FaultClass


class Vote(StrEnum):
    """What a comparison among ranks that must be equal says of one of them."""

    NONE = "not compared"
    SAME = "same"
    MAJORITY = "with the majority, some differ"
    MINORITY = "differs from the majority"
    SPLIT = "differs, no majority"


class Changed(StrEnum):
    """What the step was computed from, before it and before its replay."""

    NOTHING = "nothing"
    INPUTS = "inputs"
    MEMORY = "parameters or buffers"
    ELSEWHERE = "what another rank handed over"


class Third(StrEnum):
    """With whom a third rank agrees, where this rank and its peer repeat themselves but differ."""

    NONE = "not asked"
    SELF = "with this rank"
    PEER = "with the peer"
    NEITHER = "with neither"


class Rerun(StrEnum):
    """What came of computing the collective again from the same inputs, or of the bound of its sum."""

    NONE = "not run"
    SAME = "same, inside the bound"
    INSIDE = "differs, inside the bound"
    OUTSIDE = "outside the bound"


class Check(StrEnum):
    """Verdict of a check (the words of all checks)."""

    OK = "ok"
    SUSPECT = "suspect"
    BAD = "bad"
    UNKNOWN = "unknown"


class Blame(StrEnum):
    """Who is to blame."""

    NOBODY = "nobody"
    SELF = "this rank"
    PEER = "its peer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What was observed of one rank in one checked step; None and NONE: not observed."""

    at_rest: Vote = Vote.NONE
    """Parameters and optimizer state, among replicas."""
    decayed: bool = False
    """Parameters or optimizer state changed between an update and the next step, when nothing should touch them."""
    post: Vote = Vote.NONE
    """What a collective gave, among ranks that must have the same."""
    rerun: Rerun = Rerun.NONE
    r1_is_o: bool | None = None
    """None: not replayed."""
    r2_is_r1: bool | None = None
    changed: Changed = Changed.NOTHING
    p1_is_o: bool | None = None
    p2_is_p1: bool | None = None
    third: Third = Third.NONE
    exact: bool | None = None
    """Whether this GPU's integer products were right."""
    peer_exact: bool | None = None
    alone: int = 0
    """Earlier steps that only this GPU did not reproduce."""
    sound: bool = True
    """Whether no operation is known, upstream of what is compared, that gives other results for the same inputs; False:
    that could not be looked at, and equal replays are all that is known."""
    fleet_wide: bool = False
    """Whether the same operation was told from many hosts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What that means."""

    row: str
    check: Check
    fault_class: FaultClass
    blame: Blame
    asks: tuple[str, ...]
    """Tests of burn-in that the rank's GPUs should pass before they are trusted again."""
    redo: bool
    """Whether the step has to be computed again before the update."""
    why: str
