"""A dead test (F22: nothing is launched, no store arrives) proves nothing: it ends in an error, never in a verdict."""

from importlib import import_module

import pytest
import torch

from burnin.collectives.fabric import Simulated as Fabric
from burnin.inject import FAULTS, Scene, eligible, scene
from burnin.processes.senses import Simulated
from burnin.spec import Inject
from burnin.tests import TESTS
from burnin.workloads import Context, Workload

DEAD = Inject(gpu=0, fault="F22", rate=1.0, seed=1)
SLOW = {"inductor"}
"""Compiled for seconds; its launches are those of every recipe."""
COMPUTED = [one.id for one in TESTS.values() if one.workload is not None and one.id not in SLOW]


def workload(test: str) -> Workload:
    module, _, name = (TESTS[test].workload or "").partition(":")
    made: Workload = getattr(import_module(module), name)()
    return made


def context(inject: Inject | None) -> Context:
    return Context(
        backend="sim",
        device=torch.device("cpu"),
        inject=inject,
        alive=lambda: None,
        senses=Simulated(),
        fabric=Fabric(3),
    )


@pytest.mark.parametrize("test", COMPUTED)
def test_a_test_that_leaves_nothing_behind_is_an_error_in_every_case(test: str) -> None:
    made = workload(test)
    for case in made.cases(context(None)):
        assert eligible(FAULTS["F22"], case)
        with scene(Scene(case=case)), pytest.raises(RuntimeError, match=r"nothing was (computed|stored|copied)"):
            made.ballot(context(DEAD), case, iteration=0, seed=3, launches=2)
