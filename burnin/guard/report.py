"""What the guard checked, what it did not, and what it found: a dict for programs, text for people."""

from collections import Counter, deque
from dataclasses import asdict, dataclass, field
from typing import Any

from burnin.guard.asked import Outcome
from burnin.guard.calibrate import Calibration
from burnin.guard.seen import Check
from burnin.spec import GuardFinding

SCHEMA = "fleetd.guard.report/1"
FINDINGS_MAX = 100
"""Findings that are kept, the newest."""
REASONS_MAX = 32
"""Different reasons that are counted."""
SHOWN = 5
"""Tensors that the text names of those with the same reason."""
RATES = (1e-2, 1e-3, 1e-4)
"""Fault rates a step for which the report states how probably one would have been seen."""


@dataclass(slots=True)
class Ledger:
    """Counts, kept as steps are checked."""

    steps: int = 0
    verified: int = 0
    """Steps whose replays agreed."""
    by_peers: int = 0
    """Of those, steps that peers replayed, too."""
    rolled_back: int = 0
    last_verified_step: int | None = None
    last_peer_step: int | None = None
    findings: deque[GuardFinding] = field(default_factory=lambda: deque(maxlen=FINDINGS_MAX))
    unchecked: Counter[str] = field(default_factory=Counter)
    calibration: Calibration | None = None
    notes: list[str] = field(default_factory=list)

    def add(self, outcome: Outcome, step: int) -> None:
        """Take in a checked step."""
        for why in outcome.unchecked:
            self.skip(why)
        self.rolled_back += outcome.rolled_back
        if outcome.verdict is not None and (outcome.verdict.check is Check.OK or outcome.rolled_back):
            self.verified += 1
            self.last_verified_step = step
            if outcome.peers:
                self.by_peers += 1
                self.last_peer_step = step

    def skip(self, why: str) -> None:
        """Count something that was not checked."""
        known = why in self.unchecked or len(self.unchecked) < REASONS_MAX
        self.unchecked[why if known else "other reasons"] += 1

    def probability_seen(self, rate: float) -> float:
        """Return how probably a fault would have been seen by now.

        The fault strikes each step with probability `rate`, independently, and damages one tensor, drawn evenly among
        gradients, loss and buffers: it is seen if it strikes a verified step, in a reproducible tensor. A fault that
        gives the same wrong result at every replay is seen only where peers replay: put `by_peers` in its place.

        Raises:
            ValueError: the rate is not in [0, 1].
        """
        if not 0 <= rate <= 1:
            raise ValueError(f"rate {rate:g} is not in [0, 1]")
        share = 0.0 if self.calibration is None else self.calibration.share
        return 1.0 - (1.0 - rate * share) ** self.verified


def as_dict(ledger: Ledger, *, shape: str, ranks: int, every: int, steady: bool) -> dict[str, Any]:
    """Return the report."""
    calibration = ledger.calibration
    return {
        "schema": SCHEMA,
        "shape": shape,
        "ranks": ranks,
        "every": every,
        "steady": steady,
        "steps": ledger.steps,
        "verified_steps": ledger.verified,
        "verified_by_peers": ledger.by_peers,
        "last_verified_step": ledger.last_verified_step,
        "last_peer_verified_step": ledger.last_peer_step,
        "rolled_back": ledger.rolled_back,
        "probability_seen": {f"{rate:g}": ledger.probability_seen(rate) for rate in RATES},
        "calibration": None if calibration is None else {**asdict(calibration), "share": calibration.share},
        "unchecked": dict(ledger.unchecked),
        "notes": list(ledger.notes),
        "findings": [asdict(one) for one in ledger.findings],
    }


def as_text(report: dict[str, Any]) -> str:
    """Return the report for people."""
    lines = [
        f"guard: {report['verified_steps']} of {report['steps']} steps verified",
        f"of these by peers, too: {report['verified_by_peers']}",
        f"({report['shape']}, {report['ranks']} ranks, a check every {report['every']} steps)",
        f"last verified step: {report['last_verified_step']}; checkpoints after it are unverified",
        "a fault of one step in "
        + ", ".join(f"{1 / float(rate):.0f}: seen with {p:.1%}" for rate, p in report["probability_seen"].items()),
    ]
    calibration = report["calibration"]
    if calibration is None:
        lines.append("not calibrated: nothing was checked")
    else:
        good, bad = len(calibration["names"]), calibration["unstable"]
        lines.append(
            f"reproducible: {good} of {good + len(bad)} tensors ({calibration['replays']} replays on "
            f"{calibration['ranks']} ranks)" + ("; the others are NOT checked:" if bad else "")
        )
        lines += _groups(bad)
        lines += [f"  set: {say}" for say in dict.fromkeys(one["set"] for one in bad)]
        if bad and not report["steady"]:
            lines.append("  or GuardConfig(steady=True): checked steps alone run by deterministic kernels")
    lines += [f"not checked ({count} times): {why}" for why, count in report["unchecked"].items()]
    lines += [f"note: {note}" for note in report["notes"]]
    lines += [
        f"step {one['step']}: {one['fault_class']} ({one['check']}), rank {one['rank']}, GPU {one['gpu']}: {one['why']}"
        for one in report["findings"]
    ]
    return "\n".join(lines)


def _groups(bad: list[dict[str, Any]]) -> list[str]:
    """A line for all tensors with the same reason."""
    groups: dict[str, list[str]] = {}
    for one in bad:
        by = ", ".join(one["operations"]) or "an unknown operation"
        why = f"{one['distinct']} results, by {by}" if one["distinct"] > 1 else f"computed after {by}"
        groups.setdefault(why, []).append(one["name"])
    return [
        f"  {', '.join(names[:SHOWN])}{f' and {len(names) - SHOWN} more' if len(names) > SHOWN else ''}: {why}"
        for why, names in groups.items()
    ]
