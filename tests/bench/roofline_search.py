"""The search that `roofline_fit.py` fits with: one constant after the other, up and down, no derivatives."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

ROUNDS, STEP = 20, 0.35
"""Of the search: passes over all constants, and the first step, relative; it halves when a pass finds nothing."""
FOUND = 0.01
"""Relative gain of a pass below which the step halves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """What one point adds to the loss, and the names of the constants that it depends on."""

    names: tuple[str, ...]
    error: Callable[[Mapping[str, float]], float]


def summed(terms: Sequence[Term]) -> Callable[[Mapping[str, float]], float]:
    """The mean of all terms; a term whose constants stayed the same is not computed again."""
    known: list[dict[tuple[float, ...], float]] = [{} for _ in terms]

    def loss(values: Mapping[str, float]) -> float:
        total = 0.0
        for term, seen in zip(terms, known, strict=True):
            key = tuple(values[name] for name in term.names)
            if key not in seen:
                seen[key] = term.error(values)
            total += seen[key]
        return total / len(terms)

    return loss


def search(
    values: dict[str, float], loss: Callable[[Mapping[str, float]], float], rounds: int, say: Callable[[str], None],
    *, step: float = STEP, names: Sequence[str] = (),
) -> dict[str, float]:  # fmt: skip
    """Multiply each value (of `names`, or all) up and down while that helps; smaller steps when it does not.

    A pass that found something is gone once more as a whole: constants that make up for each other move together
    (Hooke and Jeeves 1961).
    """
    best = loss(values)
    for turn in range(rounds):
        before, start = best, values
        for name in names or list(values):
            for factor in (1.0 + step, 1.0 / (1.0 + step)):
                trial = values | {name: values[name] * factor}
                tried = loss(trial)
                if tried < best:
                    values, best = trial, tried
                    break
        trial = {name: value * value / start[name] if start[name] else value for name, value in values.items()}
        tried = loss(trial)
        if tried < best:
            values, best = trial, tried
        say(f"pass {turn + 1}: mean error {best:.4f}, step {step:.3f}")
        step = step / 2 if before - best < FOUND * before else step
    return values
