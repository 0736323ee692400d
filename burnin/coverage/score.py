"""The sums: detection by model and as a whole, for us, ablations and peers; intervals; targets. Pure."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from burnin.coverage.benign import Judged
from burnin.coverage.plan import SETS, WEIGHTS
from burnin.coverage.rules import ABLATIONS, OPTIONAL_PEERS, PEERS
from burnin.coverage.trials import Outcome
from burnin.inject import FAULTS
from burnin.spec import ExitCode, Verdict
from burnin.verdict.chance import fires, rate_bound, wilson
from burnin.verdict.judge import Judgement

SCHEMA = "fleetd.burnin.coverage/1"
RATE_ONLY = "gpu-fryer"
"""The peer that reads no result; see `burnin.coverage.rules.slow_outliers`."""
DETECTION, FACTOR, ATTRIBUTION = 0.95, 2.0, 0.99
"""Targets: weighted detection, its ratio to the best peer's, right blame among the detected."""
RARE = (1e-2, 1e-4, 1e-6)
"""Probabilities of F02 at each tile that the broken multiprocessor computes."""
TILES_SMOKE = 3e5
"""Tiles that one of 132 multiprocessors computes in a smoke run: about 10,000 bf16 products of 8192³ at 1.7 ms (H200),
4096 tiles of 128 x 128 each."""

Seen = Callable[[Outcome], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Everything that was counted."""

    outcomes: tuple[Outcome, ...]
    scenarios: tuple[Judged, ...]
    clean: Judgement
    clean_launches: int


def _ours(outcome: Outcome) -> bool:
    return outcome.detected


def _alarm(name: str) -> Seen:
    return lambda outcome: name in outcome.alarms


def by_model(outcomes: Iterable[Outcome]) -> dict[str, list[Outcome]]:
    """Model → its outcomes."""
    found: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        found[outcome.trial.model].append(outcome)
    return found


def detection(outcomes: Iterable[Outcome], seen: Seen) -> float:
    """Share of the trials that were seen; every variant and form of a model counts alike. 0 without trials."""
    cells: dict[tuple[str, str], list[bool]] = defaultdict(list)
    for outcome in outcomes:
        cells[outcome.trial.fault, outcome.trial.form].append(seen(outcome))
    return sum(sum(cell) / len(cell) for cell in cells.values()) / len(cells) if cells else 0.0


def weighted(outcomes: Iterable[Outcome], seen: Seen) -> float:
    """Detection over F01-F13 by their weights; a model without trials counts as missed."""
    models = by_model(outcomes)
    total = sum(WEIGHTS.values())
    return sum(weight * detection(models.get(model, ()), seen) for model, weight in WEIGHTS.items()) / total


def summarise(measured: Measured) -> dict[str, Any]:
    """The numbers of a report, without what was asked for."""
    outcomes = measured.outcomes
    judged = [outcome for outcome in outcomes if outcome.detected]
    right = sum(outcome.right for outcome in judged)
    ours = weighted(outcomes, _ours)
    peers = [_row(name, outcomes) for name in (*PEERS, RATE_ONLY)]
    best = max(peer["weighted_detection"] for peer in peers)
    low, high = _interval(outcomes)
    false = _false_quarantines(measured)
    return {
        "weighted_detection": ours,
        "weighted_interval": [low, high],
        "per_fault": [_fault(model, found) for model, found in by_model(outcomes).items()],
        "ablations": [_row(name, outcomes) for name in ABLATIONS],
        "peers": peers,
        "peers_with_options": [_row(name, outcomes) for name in OPTIONAL_PEERS],
        "best_peer": {
            "name": next(peer["name"] for peer in peers if peer["weighted_detection"] == best),
            "weighted_detection": best,
            "ratio": ours / best if best else None,
            "misses_ratio": (1 - best) / (1 - ours) if ours < 1 else None,
        },
        "attribution": right / len(judged) if judged else None,
        "attribution_interval": list(wilson(right, len(judged))),
        "false_quarantines": false,
        "scenarios": [_scenario(one) for one in measured.scenarios],
        "clean_launches": measured.clean_launches,
        "false_verdicts": len(measured.clean.culprits),
        "false_verdict_upper_bound": rate_bound(len(measured.clean.culprits), measured.clean_launches),
        "trials": len(outcomes),
        "rare": _rare(by_model(outcomes).get("F02", [])),
    }


def _row(name: str, outcomes: tuple[Outcome, ...]) -> dict[str, Any]:
    return {"name": name, "weighted_detection": weighted(outcomes, _alarm(name))}


def _interval(outcomes: tuple[Outcome, ...]) -> tuple[float, float]:
    """Ends of the weighted sum if every model stood at the end of its own interval: wider than 95 % needs."""
    models, total = by_model(outcomes), sum(WEIGHTS.values())
    ends = [0.0, 0.0]
    for model, weight in WEIGHTS.items():
        found = models.get(model, [])
        for side, end in enumerate(wilson(sum(map(_ours, found)), len(found))):
            ends[side] += weight * end / total
    return ends[0], ends[1]


def _false_quarantines(measured: Measured) -> int:
    """Healthy GPUs that were blamed: on hosts without a broken GPU, and beside one."""
    beside = sum(len(set(o.blamed) - {o.trial.inject.gpu}) for o in measured.outcomes)
    return sum(len(one.blamed) for one in measured.scenarios) + beside + len(measured.clean.culprits)


def _fault(model: str, found: list[Outcome]) -> dict[str, Any]:
    fired = [outcome for outcome in found if outcome.fired]
    seen = sum(map(_ours, found))
    names = (*PEERS, RATE_ONLY, *OPTIONAL_PEERS)
    tests = Counter(test for outcome in found if outcome.detected for test in outcome.found_by)
    return {
        "fault": model,
        "what": FAULTS[model].what,
        "weight": WEIGHTS.get(model, 0),
        "set": SETS.get(model, "results"),
        "trials": len(found),
        "fired": len(fired),
        "detected": seen,
        "detection": detection(found, _ours),
        "interval": list(wilson(seen, len(found))),
        "detected_given_fired": sum(map(_ours, fired)) / len(fired) if fired else None,
        "detected_given_fired_interval": list(wilson(sum(map(_ours, fired)), len(fired))),
        "tests": list(dict.fromkeys(test for outcome in found for test in outcome.eligible)),
        "found_by": dict(tests),
        "only_by": dict(Counter(o.found_by[0] for o in found if o.detected and len(o.found_by) == 1)),
        "cells": _cells(found),
        "ablations": {name: detection(found, _alarm(name)) for name in ABLATIONS},
        "peers": {name: detection(found, _alarm(name)) for name in names},
    }


def _cells(found: list[Outcome]) -> list[dict[str, Any]]:
    cells: dict[tuple[str, str], list[Outcome]] = defaultdict(list)
    for outcome in found:
        cells[outcome.trial.fault, outcome.trial.form].append(outcome)
    return [
        {
            "fault": fault,
            "what": FAULTS[fault].what,
            "form": form,
            "trials": len(cell),
            "fired": sum(outcome.fired > 0 for outcome in cell),
            "detected": sum(map(_ours, cell)),
            "classes": dict(Counter(str(outcome.fault_class) for outcome in cell if outcome.detected)),
        }
        for (fault, form), cell in cells.items()
    ]


def _rare(found: list[Outcome]) -> list[dict[str, Any]]:
    """F02 at rates that are too low to wait for: P(fires in a smoke run) times the measured P(detected | fired)."""
    fired = [outcome for outcome in found if outcome.fired]
    seen = sum(map(_ours, fired))
    low, high = wilson(seen, len(fired))
    share = seen / len(fired) if fired else 0.0
    rows = []
    for probability in RARE:
        p_fires = fires(probability, TILES_SMOKE)
        detected = {"detection": p_fires * share, "interval": [p_fires * low, p_fires * high]}
        rows.append({"fault": "F02", "probability_per_tile": probability, "p_fires": p_fires, **detected})
    return rows


def _scenario(one: Judged) -> dict[str, Any]:
    return {
        "fault": one.scenario.id,
        "what": one.scenario.what,
        "verdict": str(one.verdict),
        "why": one.why,
        "gpus": dict(Counter(map(str, one.gpus))),
        "blamed": list(one.blamed),
        "kept": one.kept,
    }


def blind_spots(outcomes: Iterable[Outcome]) -> list[str]:
    """What would never be seen: variants of weighted models, by datapath, that no trial detected.

    An intermittent fault that did not fire in its few trials is no blind spot, a persistent one that never fires is:
    nothing exercises what it breaks.
    """
    groups: dict[tuple[str, str], list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        if outcome.trial.model in WEIGHTS:
            groups[outcome.trial.fault, outcome.trial.unit or ""].append(outcome)
    spots = []
    for (fault, unit), group in groups.items():
        where = f"{fault} ({FAULTS[fault].what})" + (f" in the {unit} datapath" if unit else "")
        if any(map(_ours, group)):
            continue
        if not any(outcome.eligible for outcome in group):
            spots.append(f"{where}: no test")
        elif any(outcome.fired or outcome.trial.form == "persistent" for outcome in group):
            spots.append(f"{where}: never detected")
    return spots


def decide(report: Mapping[str, Any], measured: Measured) -> tuple[ExitCode, list[str]]:
    """(exit code, why): 0 targets met, 1 missed, 3 the harness itself cannot be judged.

    A single blind spot misses the targets, however little it weighs: each test must earn its place.
    """
    doubts = []
    if not any(outcome.fired for outcome in measured.outcomes):
        doubts.append("no planted fault changed anything")
    if measured.clean.verdict is not Verdict.PASS:
        doubts.append(f"a run without a fault did not pass: {measured.clean.why}")
    if doubts:
        return ExitCode.NOT_JUDGED, doubts
    missed = []
    if report["weighted_detection"] < DETECTION:
        gaps = [one["fault"] for one in report["per_fault"] if one["weight"] and one["detection"] < DETECTION]
        missed.append(f"weighted detection {report['weighted_detection']:.3f} < {DETECTION}: {', '.join(gaps)}")
    missed += [f"blind spot: {spot}" for spot in blind_spots(measured.outcomes)]
    ratio = report["best_peer"]["ratio"]
    if ratio is not None and ratio < FACTOR:
        missed.append(f"{ratio:.2f} times the best peer ({report['best_peer']['name']}), not {FACTOR:g}")
    if report["attribution"] is None or report["attribution"] < ATTRIBUTION:
        missed.append(f"attribution {report['attribution']} < {ATTRIBUTION}")
    if report["false_quarantines"]:
        missed.append(f"{report['false_quarantines']} healthy GPUs blamed")
    missed += [f"{one.scenario.id}: {one.verdict}: {one.why}" for one in measured.scenarios if not one.kept]
    return (ExitCode.BAD if missed else ExitCode.GOOD), missed
