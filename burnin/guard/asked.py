"""How a step is to be checked, what is kept of it meanwhile, and what came of it."""

from dataclasses import dataclass, field
from typing import Any

from burnin.guard.hashes import Pending
from burnin.guard.judge import Verdict
from burnin.guard.replay import Print, StepFunction
from burnin.guard.state import Start


@dataclass(slots=True)
class Outcome:
    """What a checked step came to."""

    loss: Any
    verdict: Verdict | None
    """None: not checked."""
    unchecked: list[str] = field(default_factory=list)
    """What could not be checked of it, and why."""
    peers: bool = False
    """Whether peers replayed it."""
    rolled_back: bool = False
    """Whether its gradients were replaced by right ones."""
    tensors: tuple[str, ...] = ()
    """Names of what differs."""
    gone: str = ""
    """Why other ranks cannot be heard any more; "" while they can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """How to check a step."""

    seed: int
    peers: bool
    """Whether peers replay it in any case, not only on suspicion."""
    exact: bool
    """Whether integer products are tested in any case."""
    by: int
    """How many ranks on the peer is."""
    standing: Pending | None
    """Of parameters and optimizer state after the last update (with this seed); None: not looked at."""


@dataclass(slots=True)
class Step:
    """What is known locally."""

    fn: StepFunction
    batch: Any
    start: Start
    original: Print
    standing: tuple[int, int]
    """Digests of parameters and optimizer state before the step."""
    decayed: bool
    """Whether they are not what they were after the last update."""
    inputs_changed: bool
    ask: Ask
