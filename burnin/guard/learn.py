"""What the guard learns from a verdict about the tensors that it compares. Pure and torch-free.

A source of differences that no table names, and that differs in a share p of all runs, shows in a checked step as often
in a replay (then it is learned: taken out of what is compared, for good) as in the original (then it looks like a chip
that failed once, however many replays follow: p of all checks do). A second one at the same place is taken for such a
source. So it makes one false verdict at most, and half a one in the mean, for any p.
"""

from collections.abc import Sequence
from dataclasses import replace

from burnin.guard.judge import Verdict
from burnin.guard.seen import Check
from burnin.spec import FaultClass

UNLIKE_ITSELF = frozenset(
    {
        "flaky, exact test clean",
        "flaky, peers too",
        "fleet-wide",
        "shifted, operations not known",
        "the peer differs, operations not known",
    }
)
"""Rows of the decision table that say: these tensors are less reproducible than they seemed."""


class Learner:
    """One a job; bounded by the number of tensors."""

    def __init__(self) -> None:
        self._struck: set[str] = set()

    def learn(self, verdict: Verdict, tensors: Sequence[str]) -> tuple[Verdict, tuple[str, ...]]:
        """Return the verdict, perhaps withdrawn, and the tensors that must not be compared any more.

        Args:
            verdict: of a checked step.
            tensors: that differed in it, in the order in which they are computed.
        """
        if verdict.row in UNLIKE_ITSELF:
            return verdict, tuple(tensors)
        if verdict.row != "transient" or not tensors:
            return verdict, ()
        if tensors[0] not in self._struck:
            self._struck.add(tensors[0])
            return verdict, ()
        again = replace(
            verdict,
            check=Check.UNKNOWN,
            fault_class=FaultClass.SOFTWARE_NONDETERMINISM,
            rank=None,
            asks=(),
            row="transient, at the same place again",
            why="an original unlike its replays again, at the same place: an operation that seldom differs",
        )
        return again, tuple(tensors)
