"""`overlap.links`: what is damaged only in company is found, and laid on the link or the GPU that it is from."""

import threading
from dataclasses import replace

import pytest
import torch

from burnin.collectives import crowd
from burnin.collectives.crowd import OverlapLinks
from burnin.collectives.fabric import Contribution, Simulated
from burnin.collectives.reduce import CollectiveExact
from burnin.spec import Ballot, Case, Device, FaultClass, Inject, Verdict
from burnin.tests import TESTS
from burnin.verdict.evidence import Cast, Evidence
from burnin.verdict.judge import judge
from burnin.verdict.links import CLEAN, LINK_TESTS
from burnin.workloads import Context
from burnin.workloads.overlap import Lane, float_lanes

GOOD = ((f"{CLEAN:016x}", 4),)


def context(inject: Inject | None = None, fabric: Simulated | None = None) -> Context:
    return Context(
        backend="sim", device=torch.device("cpu"), inject=inject, alive=lambda: None, fabric=fabric or Simulated(4)
    )


CASES = OverlapLinks().cases(context())
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def cast(case: Case, ctx: Context) -> Ballot:
    return OverlapLinks().ballot(ctx, case, iteration=0, seed=5, launches=4)


@each_case
@pytest.mark.parametrize("world", [2, 4])
def test_a_sane_host_gives_what_must_arrive(case: Case, world: int) -> None:
    ballot = cast(case, context(fabric=Simulated(world)))
    assert (ballot.fingerprints, ballot.trace) == (GOOD, ())
    assert OverlapLinks().prove(context(), case, seed=5).fingerprint == GOOD[0][0]


@each_case
def test_a_damaged_result_is_seen(case: Case) -> None:
    ballot = cast(case, context(Inject(gpu=0, fault="F04", rate=1.0, seed=1)))
    assert ballot.fired == 4
    assert GOOD[0][0] not in dict(ballot.fingerprints)


class Weak(Simulated):
    """A fabric that loses a bit while other work runs, as a link whose supply dips."""

    def run(self, op: str, out: torch.Tensor, inputs: Contribution, *, root: int) -> None:
        super().run(op, out, inputs, root=root)
        if any(thread.name.startswith("ThreadPool") for thread in threading.enumerate()):
            out.view(-1).view(torch.uint8)[3] ^= 1


def test_a_link_that_fails_only_beside_other_work_is_found_by_this_test_alone() -> None:
    quiet = CollectiveExact()
    plain = next(case for case in quiet.cases(context()) if case.name.startswith("all-reduce int32"))
    alone = quiet.ballot(context(fabric=Weak(4)), plain, iteration=0, seed=5, launches=4)
    assert alone.fingerprints == GOOD
    ballot = cast(CASES[0], context(fabric=Weak(4)))
    assert GOOD[0][0] not in dict(ballot.fingerprints)
    assert dict(ballot.trace) == {"result": "4"}


def disturbed(ctx: Context, key: int) -> dict[str, Lane]:
    """A product that is wrong whenever it runs beside something."""
    lanes, home = float_lanes(ctx, key), threading.get_ident()
    product = lanes["product"]

    def launch() -> None:
        product.launch()
        if threading.get_ident() != home:
            product.output[0, 0] += 1

    return lanes | {"product": replace(product, launch=launch)}


def test_what_runs_beside_a_collective_is_held_against_itself_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crowd, "float_lanes", disturbed)
    ballot = cast(CASES[0], context())
    assert dict(ballot.trace) == {"product beside it": "4"}
    assert GOOD[0][0] not in dict(ballot.fingerprints)


def judged(gpus: int, wrong: set[int], monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, FaultClass]]:
    """Whom a run blames in which some GPUs computed wrong beside a collective."""
    good = cast(CASES[0], context())
    with monkeypatch.context() as patch:
        patch.setattr(crowd, "float_lanes", disturbed)
        bad = cast(CASES[0], context())
    devices = tuple(
        Device(gpu=f"g{i}", index=i, sku="s", sm_count=1, memory_bytes=1, vote_key="k") for i in range(gpus)
    )
    casts = tuple(
        Cast(gpu=device.gpu, test="overlap.links", ballot=bad if device.index in wrong else good) for device in devices
    )
    evidence = Evidence(devices=devices, cases={("overlap.links", CASES[0].name): CASES[0]}, quotas={}, casts=casts)
    result = judge(evidence)
    assert result.verdict is Verdict.FAIL
    return [(one.gpu, one.fault) for one in result.culprits]


def test_the_gpu_whose_work_is_wrong_beside_a_collective_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert judged(4, {2}, monkeypatch) == [("g2", FaultClass.LINK)]


def test_of_two_gpus_the_one_whose_own_work_is_wrong_is_named_and_not_its_partner(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert judged(2, {1}, monkeypatch) == [("g1", FaultClass.LINK)]


def test_own_work_that_is_wrong_on_several_gpus_at_once_is_the_librarys(monkeypatch: pytest.MonkeyPatch) -> None:
    assert judged(4, {0, 1, 3}, monkeypatch) == []


def test_the_table_knows_it_as_a_test_over_links() -> None:
    declaration = TESTS["overlap.links"]
    assert declaration.together
    assert declaration.id in LINK_TESTS
    assert declaration.workload == f"{OverlapLinks.__module__}:{OverlapLinks.__name__}"
