import re

import pytest
import torch

from burnin.arch import ARCHS, UNKNOWN, arch_of
from burnin.golden import largest_integer
from burnin.spec import Inject
from burnin.workloads import Context
from burnin.workloads.fp8bound import exact_fp8_magnitude
from burnin.workloads.gemm import GemmPattern
from burnin.workloads.patterns import LAYOUTS, PATTERNS, PERIOD, fill_pattern
from burnin.workloads.plans import DTYPES, Plan

CPU = torch.device("cpu")
MADE = [
    (dtype, name)
    for dtype in LAYOUTS
    for name in PATTERNS[{torch.int8: "int8", torch.float16: "fp16"}.get(dtype, "bf16")]
]


def made(dtype: torch.dtype, pattern: str, *, left: bool = True, rows: int = 48, k: int = 96) -> torch.Tensor:
    operand = torch.zeros(rows, k, dtype=dtype)
    fill_pattern(operand, pattern, 5, left=left)
    return operand


@pytest.mark.parametrize(("dtype", "pattern"), MADE)
def test_patterns_are_finite_and_their_products_are_neither_zero_nor_infinite(dtype: torch.dtype, pattern: str) -> None:
    left, right = made(dtype, pattern).to(torch.float64), made(dtype, pattern, left=False).to(torch.float64)
    product = (left @ right.t()).to(torch.float32)
    assert bool(torch.isfinite(product).all())
    assert len(torch.unique(product)) > 1 or pattern == "checkerboard"  # whose rows are equal by design
    assert int((product == 0).sum()) < product.numel() / 10


def bits(operand: torch.Tensor) -> torch.Tensor:
    return operand.view(torch.int16 if operand.element_size() == 2 else torch.int8).to(torch.int64)


@pytest.mark.parametrize("dtype", LAYOUTS)
def test_what_the_patterns_promise(dtype: torch.dtype) -> None:
    width = 8 * torch.empty(0, dtype=dtype).element_size()
    full = (1 << width) - 1
    board = bits(made(dtype, "checkerboard")) & full
    other = bits(made(dtype, "checkerboard", left=False)) & full
    assert set(board.unique().tolist()) == {0xAAAA & full, 0x5555 & full}
    assert torch.equal(board ^ other, torch.full_like(board, full))
    assert torch.equal(board[:, 1:] ^ board[:, :-1], torch.full_like(board[:, 1:], full))
    inverse = bits(made(dtype, "inverse")) & full
    assert torch.equal(inverse[:, 1::2] ^ inverse[:, ::2], torch.full_like(inverse[:, ::2], full))
    toggle = made(dtype, "toggle").to(torch.float32)
    assert not toggle[:, :PERIOD].any()
    assert toggle[:, PERIOD : 2 * PERIOD].ne(0).float().mean() > 0.9
    mantissa = bits(made(dtype, "walking")) & LAYOUTS[dtype].mantissa_mask
    assert set(mantissa.unique().tolist()) - {0} == {1 << bit for bit in range(LAYOUTS[dtype].mantissa)}
    swept = bits(made(dtype, "sweep", k=1024)) & LAYOUTS[dtype].mantissa_mask
    assert set(swept.unique().tolist()) == set(range(LAYOUTS[dtype].mantissa_mask + 1))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float8_e4m3fn])
def test_subnormal_operands_are_subnormal(dtype: torch.dtype) -> None:
    values = made(dtype, "subnormal").to(torch.float32).abs()
    assert float(values.max()) < torch.finfo(dtype).smallest_normal
    assert float(values.min()) > 0


def test_a_pattern_does_not_depend_on_how_it_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = made(torch.bfloat16, "checkerboard")
    monkeypatch.setattr("burnin.workloads.patterns.BLOCK", 96 * 7)
    assert torch.equal(made(torch.bfloat16, "checkerboard"), whole)
    assert torch.equal(bits(made(torch.int8, "sweep")) & 7, bits(made(torch.int8, "sweep", rows=96)[:48]) & 7)


def test_pattern_cases_vote_and_find_a_planted_fault() -> None:
    def ctx(inject: Inject | None = None) -> Context:
        return Context(backend="sim", device=CPU, inject=inject, alive=lambda: None)

    cases = GemmPattern().cases(ctx())
    assert {case.dtype for case in cases} == {"bf16", "fp16", "int8"}
    for case in cases:
        good = GemmPattern().ballot(ctx(), case, iteration=0, seed=3, launches=2)
        assert len(good.fingerprints) == 1
        struck = ctx(Inject(gpu=0, fault="F03", rate=1, seed=1))
        assert GemmPattern().ballot(struck, case, iteration=0, seed=3, launches=2).fingerprints != good.fingerprints


@pytest.mark.parametrize(
    ("name", "fp8", "tf32", "lanes"),
    [
        ("sm_80", (), True, 32),
        ("sm_86", (), True, 32),
        ("sm_89", ("fp8e4m3", "fp8e5m2"), True, 32),
        ("sm_90", ("fp8e4m3", "fp8e5m2"), True, 32),
        ("sm_100", ("fp8e4m3", "fp8e5m2"), True, 32),
        ("gfx942:sramecc+:xnack-", ("fp8e4m3fnuz", "fp8e5m2fnuz"), True, 64),
        ("gfx950:sramecc+:xnack-", ("fp8e4m3", "fp8e5m2"), False, 64),
        ("gfx90a", (), False, 64),
        ("sm_70", (), False, 32),
    ],
)
def test_the_architectures(name: str, fp8: tuple[str, ...], tf32: bool, lanes: int) -> None:
    arch = arch_of(name)
    assert (arch.fp8, arch.tf32, arch.lanes) == (fp8, tf32, lanes)
    assert set(fp8) <= set(DTYPES)
    assert re.match(arch.pattern, name)


def test_what_nobody_measured_is_cautious() -> None:
    assert all((arch.fp8_magnitude is None) == (arch.measured_on == "") for arch in (*ARCHS, UNKNOWN))

    def plan(arch: str) -> Plan:
        return Plan(dtype="fp8e4m3", path="library", m=1, k=8192, n=1, rounded=False, arch=arch_of(arch))

    assert (plan("sm_90").magnitude, plan("sm_100").magnitude) == (16, 5)


@pytest.mark.parametrize(("kept", "limits"), [(24, (16, 16)), (14, (5, 15))])
def test_the_fp8_bound_is_found(kept: int, limits: tuple[int, int]) -> None:
    def multiply(a: torch.Tensor, bt: torch.Tensor, out: torch.Tensor) -> None:
        """Cut each partial sum after 128 products to the upper `kept` bits, as Hopper's fast accumulation does."""
        total = torch.zeros_like(out, dtype=torch.float64)
        for first in range(0, a.shape[1], 128):
            total += a[:, first : first + 128].double() @ bt[:, first : first + 128].double().t()
            unit = torch.exp2(torch.floor(torch.log2(total.abs().clamp(min=1))) + 1 - kept)
            total = torch.trunc(total / unit) * unit
        out.copy_(total)

    found = exact_fp8_magnitude(torch.float8_e4m3fn, multiply, device=CPU, edge=64)
    assert limits[0] <= found <= limits[1] <= largest_integer(torch.float8_e4m3fn)
