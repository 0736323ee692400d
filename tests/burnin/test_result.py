"""What did not run decides whether there is a verdict: by whether this run required it, not by the table alone."""

import pytest

from burnin.options import Options
from burnin.telling.result import NotRun, State, conclude
from burnin.tests import TESTS


def options() -> Options:
    return Options(backend="sim", level="quick", seed=1, host="h", tests=(), gpus=1, devices=(), inject=(), force=False)


@pytest.mark.parametrize("required", [True, False])
def test_only_what_this_run_required_leaves_a_gap(required: bool) -> None:
    state = State(backend="sim")
    state.not_run.append(NotRun(test="copy", why="it takes two GPUs, and this run has one", required=required))
    done = conclude(state, options(), (TESTS["copy"],), deaths=(), started_at_s=0.0, elapsed_s=0.0)
    says = ("the required test copy did not run: it takes two GPUs, and this run has one",)
    assert done.evidence.gaps == (says if required else ())
