"""Measures coverage: the trials, the benign hosts, a clean run, and the report of them all."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from burnin.coverage import benign, score
from burnin.coverage.host import Healthy
from burnin.coverage.plan import trials
from burnin.coverage.trials import QUICK_CASES, all_trials, clean_run, drawn, suite
from burnin.options import SEED_LIMIT
from burnin.spec import ExitCode, SpecError
from burnin.tests import LEVELS, TESTS, Declaration

QUICK_PER_FORM, FULL_PER_FORM = 3, 150
"""Trials of each variant in each form: quick fits into every test run, full gives 300 for a model of two forms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a user asks of it."""

    seed: int
    quick: bool
    level: str
    without: tuple[str, ...] = ()
    """Patterns of tests (`sfu`) or cases (`gemm.exact/fp8*`) to leave out: what would be missed without them?"""


def measure(
    asked: Asked,
    *,
    table: Mapping[str, Declaration] = TESTS,
    tick: Callable[[int, int], None] = lambda _done, _of: None,
) -> dict[str, Any]:
    """Measure, and return the report with `exit_code` and `why`. The same seed gives the same report.

    Raises:
        SpecError: A level or a seed that does not exist, or nothing is left to run.
    """
    if asked.level not in LEVELS:
        raise SpecError(f"--level {asked.level!r}: no such level; there are: {', '.join(LEVELS)}")
    if not 0 <= asked.seed < SEED_LIMIT:
        raise SpecError(f"--seed {asked.seed}: give a number from 0 to {SEED_LIMIT - 1}")
    torch.set_num_threads(1)  # the tensors are small: threads would only wait for each other
    healthy = Healthy()
    tests = suite(table, asked.level, healthy, asked.without)
    if not tests.declarations:
        raise SpecError(f"level {asked.level!r} without {', '.join(asked.without) or 'anything'}: no test is left")
    planned = trials(asked.seed, per_form=QUICK_PER_FORM if asked.quick else FULL_PER_FORM)
    most = QUICK_CASES if asked.quick else None
    some = drawn(tests, lambda _: True, most, random.Random(asked.seed))  # noqa: S311 - repeatable, no secret
    launches, clean = clean_run(some, healthy, seed=asked.seed)
    measured = score.Measured(
        outcomes=all_trials(planned, tests, healthy, seed=asked.seed, most=most, tick=tick),
        scenarios=benign.judge_all(some, healthy, seed=asked.seed),
        clean=clean,
        clean_launches=launches,
    )
    report = score.summarise(measured)
    code, why = score.decide(report, measured)
    return {
        "schema": score.SCHEMA,
        "exit_code": int(code),
        "targets_met": code is ExitCode.GOOD,
        "why": why,
        "seed": asked.seed,
        "quick": asked.quick,
        "level": asked.level,
        "tests": {test: len(cases) for test, cases in tests.cases.items()},
        "without": list(asked.without),
        **report,
    }
