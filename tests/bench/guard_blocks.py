"""What a guard costs, from short blocks of steps side by side: plain ones, guarded ones with a check, and without.

A block is `every` steps. Each guarded block is set against the plain ones before and after it, a few seconds apart, so
that a clock that drifts or a neighbour that comes and goes touches both; medians leave out what touches one. What a
median must not leave out is counted by its share: each `peer_every`-th check has exact tests besides. Blocks in which
something was found or an anomaly brought a check more are told apart: they cost what they cost, seldom.
"""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean, median, quantiles
from typing import Any

KINDS = frozenset(("check", "exact", "quiet"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A guarded block and its surroundings."""

    kind: str
    """`check`: with a check, in its last step; `exact`: with one that has exact tests besides; `quiet`: without one;
    `odd`: not what it was meant to be."""
    seconds: float
    plain_s: float
    """Mean of the plain blocks before and after it."""

    @property
    def ratio(self) -> float:
        """What it costs more, as a share of the plain time."""
        return self.seconds / self.plain_s - 1


def blocks(
    run: Callable[[str], tuple[float, str]], *, least: int, seconds: float, monotonic: Callable[[], float]
) -> list[Block]:
    """Measure: plain, check, quiet, plain, quiet, check, plain, and so on.

    Args:
        run: runs a block of a kind (`plain`, `quiet`, `check`); returns its seconds and what it has been.
        least: pairs of guarded blocks, at least so many, and up to three times as many while a kind is missing.
        seconds: and then until so many are over.
        monotonic: a clock.
    """
    until_s = monotonic() + seconds
    found: list[Block] = []
    order = ("check", "quiet")
    before_s, _ = run("plain")
    done = 0
    while done < least or (done < 3 * least and KINDS - {one.kind for one in found}) or monotonic() < until_s:
        made = [run(kind) for kind in order]
        after_s, _ = run("plain")
        found += [Block(kind=kind, seconds=took_s, plain_s=(before_s + after_s) / 2) for took_s, kind in made]
        before_s, order, done = after_s, (order[1], order[0]), done + 1
    return found


def overheads(found: list[Block], *, every: int, peer_every: int) -> dict[str, Any]:
    """What follows from the blocks.

    `quiet` is what a guarded step without a check costs, as a share of a plain step, and `check_steps` what a check
    costs more than such a step, in plain steps. A check every n steps costs `quiet` + `check_steps` / n: `overhead`.
    For n = `every` that is what the blocks have measured; for others it is derived from both.

    Raises:
        ValueError: a kind of block is missing.
    """
    by_kind = {kind: [one.ratio for one in found if one.kind == kind] for kind in ("check", "exact", "quiet", "odd")}
    if missing := [kind for kind in sorted(KINDS) if not by_kind[kind]]:
        raise ValueError(f"no block was measured that is {' or '.join(missing)}")
    usual, exact, quiet = (median(by_kind[kind]) for kind in ("check", "exact", "quiet"))
    checked = ((peer_every - 1) * usual + exact) / peer_every
    return {
        "quiet": quiet,
        "check_steps": (checked - quiet) * every,
        "ratios": {kind: spread(ratios) for kind, ratios in by_kind.items() if ratios},
        "step_ms": 1e3 * median(one.plain_s for one in found) / every,
        "blocks": len(found),
        # Everything that was guarded with checks, the odd ones among them: no median, nothing left out.
        "mean_of_all_checks": fmean(one.ratio for one in found if one.kind != "quiet"),
    }


def overhead(told: dict[str, Any], every: int) -> float:
    """What a check every so many steps costs, as a share of a plain step; `told`: from `overheads`."""
    return float(told["quiet"] + told["check_steps"] / every)


def spread(ratios: list[float]) -> dict[str, Any]:
    """Median, quartiles, all."""
    low, _, high = quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else ratios * 3
    return {"median": median(ratios), "quartiles": [low, high], "all": ratios}
