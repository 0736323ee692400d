"""On a real GPU: every case of every test runs, repeats itself, and what is exact is equal to the CPU's."""

import time
from importlib import import_module

import pytest
import torch

from burnin.inject import FAULTS, eligible
from burnin.keys import derive
from burnin.seed import fill_normal
from burnin.spec import Case, Inject
from burnin.tests import TESTS
from burnin.workloads import Context, MissingError, Workload
from burnin.workloads.attention import LENGTHS_CUDA, Attention, attend
from burnin.workloads.fp8bound import exact_fp8_magnitude
from burnin.workloads.memory import MARCHES, Hbm
from burnin.workloads.plans import DTYPES, Plan, arch_of_device, multiplier
from burnin.workloads.units import SmVote

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]
NAMES = ("gemm.pattern", "gemm.smvote", "attention", "int", "sfu", "embedding", "reduction", "eigh")


def context(inject: Inject | None = None) -> Context:
    return Context(backend="cuda", device=torch.device("cuda:0"), inject=inject, alive=lambda: None)


def workload(test: str) -> Workload:
    module, _, name = str(TESTS[test].workload).partition(":")
    made: Workload = getattr(import_module(module), name)()
    return made


def cases() -> list[Case]:
    found: list[Case] = []
    for test in NAMES if torch.cuda.is_available() else ():
        try:
            found += workload(test).cases(context())
        except MissingError:
            continue
    return found


each_case = pytest.mark.parametrize("case", cases(), ids=lambda case: f"{case.test} {case.name}")


@each_case
def test_every_case_repeats_itself_and_the_exact_ones_are_proved(case: Case) -> None:
    one, two = (workload(case.test).ballot(context(), case, iteration=0, seed=11, launches=3) for _ in range(2))
    assert one.fingerprints == two.fingerprints
    assert (one.launches, len(one.fingerprints)) == (3, 1)
    if case.exact:
        proof = workload(case.test).prove(context(), case, seed=11)
        assert proof.fingerprint == one.fingerprints[0][0], proof.why


@each_case
def test_a_planted_fault_is_seen(case: Case) -> None:
    if not eligible(FAULTS["F03"], case):
        pytest.skip("F03 cannot strike it")
    struck = context(Inject(gpu=0, fault="F03", rate=1, seed=1))
    bad = workload(case.test).ballot(struck, case, iteration=0, seed=11, launches=2)
    good = workload(case.test).ballot(context(), case, iteration=0, seed=11, launches=2)
    assert bad.fired == 2
    assert bad.fingerprints != good.fingerprints


def test_every_multiprocessor_votes() -> None:
    ctx, smvote = context(), SmVote()
    count = torch.cuda.get_device_properties(0).multi_processor_count
    for case in smvote.cases(ctx):
        ballot = smvote.ballot(ctx, case, iteration=0, seed=5, launches=1)
        assert len({name for name, _ in ballot.trace}) == count, case.name


@pytest.mark.parametrize("case", [case for case in cases() if case.test == "attention" and "jagged" in case.name])
def test_attention_is_right(case: Case) -> None:
    found = Attention()
    recipe = next(one for one in found.recipes(context()) if one.name == case.name)
    prepared = recipe.prepare(context(), 7)
    prepared.launch()
    heads, dim = prepared.outputs["o"].shape[1:]
    assert prepared.outputs["o"].shape[0] == sum(LENGTHS_CUDA)
    # The sequence of 777 tokens, whose inputs are part of what the recipe made for this seed.
    begin = sum(LENGTHS_CUDA[: LENGTHS_CUDA.index(777)])
    rows = slice(begin, begin + 777)
    inputs = []
    for name in ("q", "k", "v", "do"):
        whole = torch.empty(sum(LENGTHS_CUDA), heads, dim, dtype=DTYPES[case.dtype], device="cuda")
        fill_normal(whole, derive(7, "attention", name))
        inputs.append(whole[rows].cpu())
    right = attend(tuple(inputs), (777,), torch.float64)
    for (name, output), value in zip(prepared.outputs.items(), right, strict=True):
        error = (output[rows].cpu().double() - value).abs().max() / value.abs().max()
        assert error < 2e-2, (name, float(error))


@pytest.mark.parametrize("path", ["library", "triton"])
def test_the_fp8_bound_of_the_table_is_not_beyond_what_is_measured(path: str) -> None:
    arch = arch_of_device(torch.device("cuda:0"))
    if not arch.fp8:
        pytest.skip("no fp8 matrix units")
    name = arch.fp8[0]

    def multiply(a: torch.Tensor, bt: torch.Tensor, out: torch.Tensor) -> None:
        m, k = a.shape
        plan = Plan(dtype=name, path=path, m=m, k=k, n=len(bt), rounded=False, arch=arch)
        multiplier(plan, a, bt)(out)

    measured = exact_fp8_magnitude(DTYPES[name], multiply, device=torch.device("cuda:0"))
    used = Plan(dtype=name, path=path, m=1, k=8192, n=1, rounded=False, arch=arch).magnitude
    assert used <= measured, f"{arch.name} {path}: exact up to {measured}, the table says {used}"


@pytest.mark.parametrize("name", [march.name for march in MARCHES])
def test_nearly_all_memory_is_marched_over_at_the_speed_of_copies(name: str) -> None:
    ctx, hbm = context(), Hbm()
    case = next(case for case in hbm.cases(ctx) if case.name == name)
    hbm.ballot(ctx, case, iteration=0, seed=1, launches=1)  # compiles
    ballot = hbm.ballot(ctx, case, iteration=0, seed=1, launches=2)
    whole = torch.cuda.get_device_properties(0).total_memory
    assert ballot.bytes / 2 >= 0.95 * whole
    assert len(ballot.fingerprints) == 1
    march = next(march for march in MARCHES if march.name == name)
    if march.moved:
        return
    # One write, one read a check, and a write behind each check that inverts.
    moved = ballot.bytes * (2 + 2 * march.inversions)
    assert moved / ballot.elapsed_s >= 0.8 * copy_bandwidth()


def copy_bandwidth() -> float:
    """Bytes per second of a device copy, reading and writing counted."""
    torch.cuda.empty_cache()
    one = torch.empty(1 << 30, dtype=torch.int32, device="cuda")
    other = torch.empty_like(one)
    other.copy_(one)
    torch.cuda.synchronize()
    begun_s = time.perf_counter()
    for _ in range(20):
        other.copy_(one)
    torch.cuda.synchronize()
    return 20 * 2 * one.nbytes / (time.perf_counter() - begun_s)
