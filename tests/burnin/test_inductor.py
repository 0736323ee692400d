from shutil import which

import pytest
import torch

from burnin.spec import Inject
from burnin.workloads import Context, MissingError, inductor
from burnin.workloads.inductor import Inductor, graph, near


def context(inject: Inject | None = None) -> Context:
    return Context(backend="sim", device=torch.device("cpu"), inject=inject, alive=lambda: None)


def test_near_is_a_bound_and_refuses_nan() -> None:
    right = tuple(one.double() for one in graph(torch.randn(4, 8), torch.randn(4, 8)))
    assert near(right, right, 0.0).tolist() == [1, 1, 1]
    assert near((right[0] * 1.1, right[1], right[2] * float("nan")), right, 0.01).tolist() == [0, 1, 0]


def test_without_a_compiler_it_is_missing_and_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inductor, "which", lambda _: None)
    with pytest.raises(MissingError, match=r"install g\+\+"):
        Inductor().cases(context())


@pytest.mark.skipif(which("g++") is None, reason="torch.compile needs a C++ compiler")
@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch, about itself
def test_the_compiled_graph_votes_and_stays_inside_its_bounds() -> None:
    workload = Inductor()
    case = workload.cases(context())[1]
    good = workload.ballot(context(), case, iteration=0, seed=3, launches=2)
    assert len(good.fingerprints) == 1
    prepared = workload.recipes(context())[1].prepare(context(), 3)
    prepared.launch()
    assert prepared.inside is not None
    assert prepared.inside().tolist() == [1, 1, 1]
    assert good.outside == 0
    struck = context(Inject(gpu=0, fault="F03", rate=1, seed=1))
    assert workload.ballot(struck, case, iteration=0, seed=3, launches=2).fingerprints != good.fingerprints
