"""What a session is asked to carry out, and who computes for it. Torch-free."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from burnin.processes.children import Heard
from burnin.processes.wire import Request
from burnin.spec import Case, Inject
from burnin.tests import Declaration, Effort

RETESTS = 10
"""Ballots of a retest: the first half with the same seed, the others with new ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One test to carry out."""

    test: str
    """The id under which its evidence counts."""
    declaration: Declaration
    cases: tuple[Case, ...]
    effort: Effort
    inject: Mapping[str, Inject]
    """GPU → the fault planted on it."""
    seed: int
    """What the seeds of its rounds are derived from."""
    first: int = 0
    """Number of its first round: rounds that were done before have others, and so other seeds."""
    again: tuple[int, ...] = ()
    """Seeds that every second round takes in turn, in place of new ones."""
    known: frozenset[str] = frozenset()
    """GPUs that are known to be bad: they are neither asked again nor examined when they are wrong once more."""
    retests: int = RETESTS
    common: bool = False
    """Whether to compute one round more, on inputs that all hosts share."""
    examine: bool = True
    """Whether to find the wrong elements of wrong results, for their signatures."""


class Crew(Protocol):
    """Who computes for a session: processes of GPUs (`processes.children`), or a simulated host (`burnin.coverage`)."""

    @property
    def living(self) -> tuple[str, ...]:
        """The GPUs that can still be asked."""

    def ask(
        self, asks: Mapping[str, Sequence[Request]], *, test: str, quiet_s: float, limit_s: float, heard: Heard
    ) -> None:
        """Have the requests answered; see `burnin.processes.children.Children.ask`."""
