"""`overlap`: lanes give together what they give alone, and what only a crowd does wrong is seen."""

import threading
from dataclasses import replace

import pytest
import torch

from burnin.processes.senses import Unfelt
from burnin.spec import Ballot, Case, Inject
from burnin.workloads import Context, overlap
from burnin.workloads.overlap import ALONE_EVERY, CPU, CUDA, MAGNITUDE, Lane, Lanes, Overlap, alternating, exact_lanes

DEVICE = torch.device("cpu")


def context(inject: Inject | None = None) -> Context:
    return Context(backend="sim", device=DEVICE, inject=inject, alive=lambda: None, senses=Unfelt())


CASES = Overlap().cases(context())
EXACT, FLOAT = CASES
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def cast(case: Case, ctx: Context, *, seed: int = 3, launches: int = 2 * ALONE_EVERY) -> Ballot:
    return Overlap().ballot(ctx, case, iteration=0, seed=seed, launches=launches)


@each_case
def test_together_as_alone_again_and_again(case: Case) -> None:
    one, again = cast(case, context()), cast(case, context())
    assert replace(one, elapsed_s=0.0) == replace(again, elapsed_s=0.0)
    assert one.fingerprints[0][1] == 2 * ALONE_EVERY
    assert one.fingerprints != cast(case, context(), seed=4).fingerprints
    assert len(one.trace) >= 3


def test_the_exact_lanes_are_proved_on_the_cpu() -> None:
    proof = Overlap().prove(context(), EXACT, seed=3)
    assert proof.fingerprint == cast(EXACT, context()).fingerprints[0][0]
    refuted = Overlap().prove(context(Inject(gpu=0, fault="F04", rate=1.0, seed=1)), EXACT, seed=3)
    assert refuted.fingerprint is None
    with pytest.raises(ValueError, match="no golden"):
        Overlap().prove(context(), FLOAT, seed=3)


@each_case
@pytest.mark.parametrize("fault", ["F03", "F04", "F10", "F13"])
def test_a_planted_fault_changes_the_ballot(case: Case, fault: str) -> None:
    bad = cast(case, context(Inject(gpu=0, fault=fault, rate=1.0, seed=1)))
    assert bad.fired == bad.launches
    assert bad.fingerprints[0][0] not in dict(cast(case, context()).fingerprints)


def test_integer_sums_are_exact_in_every_size() -> None:
    for size in (CPU, CUDA):
        assert size.edge * MAGNITUDE**2 < 2**24


def disturbed(ctx: Context, key: int) -> dict[str, Lane]:
    """The lanes of a chip whose copies lose a bit when others are at work: in another thread than whoever launches."""
    whole, home = exact_lanes(ctx, key), threading.get_ident()
    copy = whole["device copy"]

    def copies() -> None:
        copy.launch()
        if threading.get_ident() != home:
            copy.output.view(-1)[7] ^= 1 << 4

    return whole | {"device copy": replace(copy, launch=copies)}


def test_a_copy_that_is_wrong_only_beside_a_product_is_found_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    good = cast(EXACT, context())
    monkeypatch.setattr(overlap, "exact_lanes", disturbed)
    ballot = cast(EXACT, context())
    assert len(ballot.fingerprints) == 2
    counts = dict(ballot.fingerprints)
    assert counts[good.fingerprints[0][0]] == 2  # its launches alone are right: no other test would see it
    wrong = [name for (name, mine), (_, right) in zip(ballot.trace, good.trace, strict=True) if mine != right]
    assert wrong == ["device copy"]


def test_all_lanes_but_those_of_every_fourth_launch_run_at_once() -> None:
    home, meeting = threading.get_ident(), threading.Barrier(3, timeout=100)
    kinds: list[str] = []

    def launch_one() -> None:
        if threading.get_ident() == home:
            kinds.append("alone")
            return
        meeting.wait()  # one after the other they would wait for ever for each other
        kinds.append("together")

    lanes: Lanes = {name: Lane(output=torch.zeros(1), launch=launch_one) for name in "abc"}
    launch = alternating(context(), lanes)
    for _ in range(2 + 2 * ALONE_EVERY):
        launch()
    assert kinds[:6] == ["alone"] * 6
    assert kinds[6:] == (["together"] * 3 * (ALONE_EVERY - 1) + ["alone"] * 3) * 2


def test_what_a_lane_raises_is_raised() -> None:
    def broken() -> None:
        raise ArithmeticError("a lane")

    lanes = {"a": Lane(output=torch.zeros(1), launch=broken), "b": Lane(output=torch.zeros(1), launch=lambda: None)}
    launch = alternating(context(), lanes)
    for _ in range(3):
        with pytest.raises(ArithmeticError, match="a lane"):
            launch()
