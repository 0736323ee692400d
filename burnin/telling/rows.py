"""The part of the report about tests: what each did, what every GPU felt meanwhile, what was recorded. Torch-free."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from burnin.spec import FaultClass, Verdict
from burnin.telling.result import Result
from burnin.verdict.evidence import Cast
from burnin.verdict.health import QUANTITIES, Felt, together
from burnin.verdict.judge import TestVerdict

MAX_RECORDS = 512
"""Records of one test in a report; there is one for each GPU and ballot that has figures of its own."""


def rows(result: Result) -> list[dict[str, Any]]:
    """One entry for every test that ran to its end, in the order of the table; of the others `not_run` tells."""
    judged = {test.test: test for test in result.judgement.tests}
    missing = {one.test for one in result.not_run} - result.test_elapsed_s.keys()
    index = {device.gpu: device.index for device in result.devices}
    made = []
    for declaration in result.declarations:
        test = declaration.id
        if test in missing:
            continue
        verdict, why, fault = _verdict(result, test, judged)
        casts = [cast for cast in result.evidence.casts if cast.test == test]
        made.append(
            {
                "id": test,
                "verdict": verdict.value,
                "class": fault.value,
                "why": why,
                "launches": sum(cast.ballot.launches for cast in casts),
                "bytes": sum(cast.ballot.bytes for cast in casts),
                "elapsed_s": round(result.test_elapsed_s.get(test, 0.0), 3),
                # The mean rate of one GPU; a GPU that is slower than the others is not hidden by it for long.
                "rates": _rates(result, casts),
                "gpus": [
                    _gpu(result, [cast for cast in casts if cast.gpu == gpu], gpu, index[gpu])
                    for gpu in index
                    if any(cast.gpu == gpu for cast in casts)
                ],
                "records": [_record(cast, index[cast.gpu]) for cast in casts if cast.ballot.facts][:MAX_RECORDS],
            }
        )
    return made


def feelings(felt: Felt) -> dict[str, Any]:
    """What a GPU felt: {min, mean, max} of each quantity, null where it cannot tell; what held its clock back."""
    spreads = {name: getattr(felt, name) for name in QUANTITIES}
    told = {name: asdict(spread) if spread is not None else None for name, spread in spreads.items()}
    return told | {"clock_limits": list(felt.limits)}


def _gpu(result: Result, casts: Sequence[Cast], gpu: str, index: int) -> dict[str, Any]:
    felt = together([cast.felt for cast in casts if cast.felt is not None])
    launches = sum(cast.ballot.launches for cast in casts)
    return {"gpu": gpu, "index": index, "launches": launches, "rates": _rates(result, casts), **feelings(felt)}


def _record(cast: Cast, index: int) -> dict[str, Any]:
    """One ballot that measured more than results."""
    ballot = cast.ballot
    about = {"gpu": cast.gpu, "index": index, "case": ballot.case, "iteration": ballot.iteration, "retest": cast.retest}
    return about | dict(ballot.facts) | feelings(cast.felt or Felt())


def _rates(result: Result, casts: Sequence[Cast]) -> dict[str, float]:
    """Work by time, by the names of the rates."""
    flops: dict[str, float] = defaultdict(float)
    seconds: dict[str, float] = defaultdict(float)
    for cast in casts:
        name = result.evidence.cases[cast.test, cast.ballot.case].rate_name
        flops[name] += cast.ballot.flops
        seconds[name] += cast.ballot.elapsed_s
    return {name: flops[name] / seconds[name] for name in flops if seconds[name] > 0 and flops[name] > 0}


def _verdict(result: Result, test: str, judged: dict[str, TestVerdict]) -> tuple[Verdict, str, FaultClass]:
    if test in result.own:
        return (*result.own[test], FaultClass.NONE)
    # Of a test that ran, what is missing are cases that the library cannot compute.
    open_cases = [one.why for one in result.not_run if one.test == test and one.required]
    if test in judged and judged[test].verdict is Verdict.PASS and open_cases:
        return Verdict.NOT_JUDGED, open_cases[0], judged[test].fault
    if test in judged:
        return judged[test].verdict, judged[test].why, judged[test].fault
    return Verdict.NOT_JUDGED, "it left no result", FaultClass.NONE
