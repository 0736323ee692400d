"""The report of a run: one dictionary of plain values, from which the JSON, the JUnit XML and the page are written.

Its keys are published (`burnin.schema`), and within its number only added to.
"""

import json
from collections import Counter
from dataclasses import asdict
from typing import Any

from burnin.spec import SCHEMA, ExitCode, Verdict
from burnin.telling.advice import advice
from burnin.telling.ballots import host_ballots
from burnin.telling.markup import plain
from burnin.telling.result import Result
from burnin.telling.rows import feelings, rows
from burnin.tests import SELFTEST_WORKLOAD
from burnin.verdict.chance import never_seen_bound
from burnin.verdict.health import Felt
from burnin.verdict.judge import GpuVerdict
from burnin.verdict.rates import Held
from burnin.verdict.weigh import Wrong

MAX_SIGNATURES = 64
"""Signatures in a report; a GPU that is wrong in every launch would fill it with the same story."""
MAX_TILES = 64
"""Tiles named in one signature."""

EXIT_CODES = {Verdict.PASS: ExitCode.GOOD, Verdict.FAIL: ExitCode.BAD, Verdict.NOT_JUDGED: ExitCode.NOT_JUDGED}


def build(result: Result) -> dict[str, Any]:
    """The report as plain values, with the keys that its schema promises."""
    judgement = result.judgement
    index = {device.gpu: device.index for device in result.devices}
    keys = sorted({device.vote_key for device in result.devices})
    signatures = [_signature(result, wrong, index) for wrong in _telling(judgement.wrongs)]
    return {
        "schema": SCHEMA,
        "verdict": judgement.verdict.value,
        "exit_code": int(EXIT_CODES[judgement.verdict]),
        "why": judgement.why,
        "level": result.options.level,
        "backend": result.backend,
        "host": result.options.host,
        "seed": result.options.seed,
        "started_at_s": result.started_at_s,
        "elapsed_s": round(result.elapsed_s, 3),
        "culprits": [
            {"gpu": gpu.gpu, "index": index[gpu.gpu], "class": gpu.fault.value, "why": gpu.why}
            for gpu in judgement.culprits
        ],
        "gpus": [_gpu(result, gpu) for gpu in judgement.gpus],
        "tests": rows(result),
        "rates": [_held(one, index) for one in result.held],
        "clean": _clean(result),
        "not_run": [{"id": one.test, "why": one.why, "required": one.required} for one in result.not_run],
        "signatures": signatures,
        "signatures_total": len(judgement.wrongs),
        "reproduce": result.options.command(None, backend=result.backend),
        "injected": [
            {
                "gpu": one.gpu,
                "index": one.index,
                "fault": one.fault,
                "rate": one.rate,
                "seed": one.seed,
                "fired": one.fired,
                "found": one.found,
            }
            for one in judgement.injected
        ],
        "deaths": [
            {"gpu": one.gpu, "index": index[one.gpu], "test": one.test, "kind": one.kind.value, "why": one.why}
            for one in result.evidence.deaths
        ],
        "ballots": host_ballots(result.evidence),
        "notes": list(result.notes),
        "schedule": _schedule(result),
        "settings": [dict(one) for one in result.settings],
        "vote_key": ",".join(keys),
        "versions": dict(sorted(result.versions.items())),
    }


def _telling(wrongs: tuple[Wrong, ...]) -> list[Wrong]:
    """The wrongs worth showing: of every GPU and test some, first those of the first pass."""
    order = sorted(wrongs, key=lambda wrong: (wrong.retest, wrong.ballot is None))
    taken: Counter[tuple[str, str]] = Counter()
    each = max(1, MAX_SIGNATURES // max(1, len({(wrong.gpu, wrong.test) for wrong in wrongs})))
    told = []
    for wrong in order:
        at = (wrong.gpu, wrong.test)
        taken[at] += 1
        if taken[at] <= each:
            told.append(wrong)
    return told[:MAX_SIGNATURES]


def _signature(result: Result, wrong: Wrong, index: dict[str, int]) -> dict[str, Any]:
    """What one wrong looked like, and the command that computes it again."""
    ballot, right = wrong.ballot, wrong.right
    tiles = wrong.tiles
    operation = None
    if ballot is not None and right is not None:
        theirs = dict(right.trace)
        operation = next((name for name, value in ballot.trace if theirs.get(name, value) != value), None)
    felt = next((cast.felt for cast in result.evidence.casts if cast.ballot is ballot), None)
    test = SELFTEST_WORKLOAD if wrong.test == "selftest" else wrong.test
    return {
        "gpu": wrong.gpu,
        "index": index[wrong.gpu],
        "test": wrong.test,
        "case": wrong.case,
        "seed": wrong.seed,
        "iteration": wrong.iteration,
        "retest": wrong.retest,
        "against": wrong.basis.value,
        "count": _bad(wrong),
        "launches": ballot.made if ballot is not None else 1,
        "expected": wrong.reference,
        "got": [fingerprint for fingerprint, _ in ballot.fingerprints] if ballot is not None else [],
        "tiles": list(tiles[:MAX_TILES]),
        "tiles_total": len(tiles),
        "elements": _elements(result, wrong),
        "op": operation,
        **feelings(felt or Felt()),
        "why": wrong.why,
        "reproduce": result.options.command(test, backend=result.backend),
    }


def _elements(result: Result, wrong: Wrong) -> dict[str, Any] | None:
    """Which elements were wrong when this input was computed again; None: not examined, or not wrong again."""
    for one in result.evidence.examined:
        if (one.gpu, one.test, one.case, one.seed) == (wrong.gpu, wrong.test, wrong.case, wrong.seed):
            return asdict(one.elements) | {
                "bits": {str(bit): times for bit, times in one.elements.bits},
                "first": list(one.elements.first),
            }
    return None


def _bad(wrong: Wrong) -> int:
    """Launches that were wrong; without a reference, those that differ from the most frequent result."""
    if wrong.ballot is None:
        return 1
    if wrong.reference is None:
        return wrong.ballot.made - max(count for _, count in wrong.ballot.fingerprints)
    return sum(count for fingerprint, count in wrong.ballot.fingerprints if fingerprint != wrong.reference)


def _gpu(result: Result, verdict: GpuVerdict) -> dict[str, Any]:
    device = next(device for device in result.devices if device.gpu == verdict.gpu)
    return {
        "gpu": device.gpu,
        "index": device.index,
        "verdict": verdict.verdict.value,
        "class": verdict.fault.value,
        "strikes": verdict.strikes,
        "why": verdict.why,
        "sku": device.sku,
        "sm_count": device.sm_count,
        "vote_key": device.vote_key,
    }


def _held(one: Held, index: dict[str, int]) -> dict[str, Any]:
    """One GPU's best rate in one case, beside its peers' median and what such a part should reach."""
    return {
        "gpu": one.gpu,
        "index": index[one.gpu],
        "test": one.case.test,
        "case": one.case.name,
        "name": one.case.rate_name,
        "best": one.rate,
        "gpus": one.peers,
        "median": one.median,
        "expected": one.expected.rate,
        "expected_error": one.expected.error,
        "slow_below": one.case.slow_below,
        "why": one.expected.why,
    }


def _schedule(result: Result) -> list[dict[str, Any]]:
    """What the time was spent on: (kind, test) with its slices, rounds and seconds, in the order of the first slice."""
    told: dict[tuple[str, str], dict[str, Any]] = {}
    for one in result.done:
        at = (one.slice.kind.value, one.slice.test)
        row = told.setdefault(at, {"kind": at[0], "test": at[1], "slices": 0, "rounds": 0, "elapsed_s": 0.0})
        row["slices"] += 1
        row["rounds"] += one.rounds
        row["elapsed_s"] = round(row["elapsed_s"] + one.elapsed_s, 3)
    return list(told.values())


def _clean(result: Result) -> dict[str, Any]:
    """Launches of GPUs that passed with no fault planted, and the rate of false verdicts that they leave possible."""
    passed = {gpu.gpu for gpu in result.judgement.gpus if gpu.verdict is Verdict.PASS}
    counted = 0 if result.options.inject else sum(c.ballot.launches for c in result.evidence.casts if c.gpu in passed)
    return {"launches": counted, "false_verdict_upper_bound": never_seen_bound(counted)}


def summary(report: dict[str, Any]) -> list[str]:
    """A few lines for a person: who, what, why, what next."""
    gpus = report["gpus"]
    counts = Counter(gpu["verdict"] for gpu in gpus)
    told = ", ".join(f"{counts[verdict.value]} {verdict.value}" for verdict in Verdict if counts[verdict.value])
    many = f"{len(gpus)} GPU" + ("" if len(gpus) == 1 else "s")
    where = f"{report['host']}, level {report['level']}, {many} on {report['backend']}"
    lines = [
        f"{report['verdict']}: {where} ({told or 'none tested'}), {report['elapsed_s']:.1f} s, seed {report['seed']}"
    ]
    lines += [
        f"  culprit: GPU {one['index']} ({one['gpu']}), {one['class']}: {one['why']}" for one in report["culprits"]
    ]
    if not report["culprits"]:
        lines.append(f"  why: {report['why']}")
    if report["verdict"] != Verdict.PASS:
        lines += [f"  next: {line}" for line in advice(report)]
    for one in report["injected"]:
        found = "found" if one["found"] else "NOT found"
        lines.append(f"  injected: {one['fault']} on GPU {one['index']}: changed {one['fired']} launches, {found}")
    lines += [f"  not run: {one['id']}: {one['why']}" for one in report["not_run"]]
    if report["signatures"]:
        lines.append(f"  again: {report['signatures'][0]['reproduce']}")
    elif report["verdict"] != Verdict.PASS:
        lines.append(f"  again: {report['reproduce']}")
    return [plain(line) for line in lines]


def to_json(report: dict[str, Any]) -> str:
    """The report as JSON text."""
    return json.dumps(report, indent=2, allow_nan=False) + "\n"
