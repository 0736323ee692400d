"""Whether two training runs learn alike: their losses, and their normalised entropies. Pure and torch-free.

A run is a file of JSON lines, `{"step": 7, "loss": 2.31, "ne": 0.84}`; `ne` may be missing or null.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

LOSS_RELATIVE = 3e-3
"""Greatest relative difference of the losses: the tolerance with which runs on different hardware are compared."""
NE_ABSOLUTE = 1e-4
"""Greatest difference of the normalised entropies: what a recommendation model's owners still call equal."""
TAIL = 0.25
"""Share of the common steps, the last ones, over which the means are taken: single steps are noise."""


class RunError(ValueError):
    """A file is no run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One step of a run."""

    loss: float
    ne: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Parity:
    """How two runs compare."""

    ok: bool
    steps: int
    """Common steps."""
    identical: bool
    """Whether every common loss is the same number."""
    loss_relative: float
    ne_difference: float | None
    """None: not both have it."""
    first_difference: int | None
    """First step whose losses are not the same number."""
    why: str


def read_run(lines: Iterable[str], name: str) -> dict[int, Point]:
    """Return the steps of a run; a step that is there twice counts as it was last (the run was resumed).

    Raises:
        RunError: a line is no step, or there is none.
    """
    found = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            said = json.loads(line)
            ne = said.get("ne")
            found[int(said["step"])] = Point(loss=float(said["loss"]), ne=None if ne is None else float(ne))
        except (ValueError, OverflowError, TypeError, KeyError, AttributeError, RecursionError):
            raise RunError(f'{name}:{number}: no step; write {{"step": 7, "loss": 2.31}}, a line a step') from None
    if not found:
        raise RunError(f"{name}: there are no steps in it")
    return found


def compare(
    one: Mapping[int, Point], other: Mapping[int, Point], *, loss: float = LOSS_RELATIVE, ne: float = NE_ABSOLUTE
) -> Parity:
    """Compare two runs over the last quarter of their common steps.

    Args:
        one: step → what it gave; the reference.
        other: the run in question.
        loss: greatest relative difference of the mean losses.
        ne: greatest difference of the mean normalised entropies.

    Raises:
        RunError: they have no step in common.
    """
    steps = sorted(one.keys() & other.keys())
    if not steps:
        raise RunError("the runs have no step in common")
    differing = [step for step in steps if one[step].loss != other[step].loss]
    tail = steps[-max(1, math.ceil(TAIL * len(steps))) :]
    mean_one, mean_other = _mean([one[step].loss for step in tail]), _mean([other[step].loss for step in tail])
    relative = abs(mean_other - mean_one) / max(abs(mean_one), 1e-12)
    entropies = [(one[step].ne, other[step].ne) for step in tail]
    both = [(left, right) for left, right in entropies if left is not None and right is not None]
    difference = abs(_mean([right for _, right in both]) - _mean([left for left, _ in both])) if both else None
    # Written so that NaN, with which every comparison is false, is no parity.
    good_loss, good_ne = relative <= loss, difference is None or difference <= ne
    parts = [f"loss differs by {relative:.3%} (at most {loss:.3%})"]
    parts += [] if difference is None else [f"normalised entropy by {difference:.2e} (at most {ne:.0e})"]
    return Parity(
        ok=good_loss and good_ne,
        steps=len(steps),
        identical=not differing,
        loss_relative=relative,
        ne_difference=difference,
        first_difference=differing[0] if differing else None,
        why=", ".join(parts) + f", over {len(tail)} of {len(steps)} common steps",
    )


def _mean(values: Sequence[float]) -> float:
    """The mean; what has none is NaN or infinite, and no error: losses of a run that diverged are any number."""
    if all(map(math.isfinite, values)):
        return math.fsum(value / len(values) for value in values)
    return sum(values)
