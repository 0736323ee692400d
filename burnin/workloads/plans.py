"""Which matrix products exist on which backend, and how each is computed: the table behind `burnin.workloads.gemm`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from burnin.golden import exact_magnitude
from burnin.inject import Accumulator
from burnin.kernels import have_triton, multiply_on_device

SHAPES_CUDA = ((8192, 8192, 8192), (4096, 14336, 4096), (1023, 777, 2049))
"""(m, k, n): a large cube, the feed-forward layer of a language model, an irregular one with tails everywhere."""
SHAPES_CUDA_16 = ((8192, 8192, 8192), (4096, 14336, 4096), (1040, 784, 2064))
"""The same where the library wants multiples of 16 (fp8, int8)."""
SHAPES_CPU = ((256, 192, 320), (129, 77, 65), (1024, 64, 48))
SMALL_MEMORY_BYTES = 24 << 30
"""Devices with less memory than this run the cube at half the edge."""
DTYPES = {
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp32": torch.float32,
    "tf32": torch.float32,
    "int8": torch.int8,
    "fp8e4m3": torch.float8_e4m3fn,
    "fp8e4m3fnuz": torch.float8_e4m3fnuz,
}
FP8_MAGNITUDE = 16
"""Largest integers for which fp8 with default accumulation was measured to be exact (H200, K up to 8192)."""
FP16_MAX = 65_504
FP16_SIGMAS = 8
"""Rounded fp16 outputs: eight standard deviations of the sums stay below 65504 (the golden checks the real maximum)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One matrix product C[m, n] = A[m, k] · Bt[n, k]ᵀ."""

    dtype: str
    path: str
    """`library` (the vendor's BLAS) or `triton` (our own kernel)."""
    m: int
    k: int
    n: int
    rounded: bool
    """Whether the output has the dtype of the operands; else float32 or int32."""

    @property
    def shape(self) -> str:
        """Shape as it appears in names: MxKxN."""
        return f"{self.m}x{self.k}x{self.n}"

    @property
    def name(self) -> str:
        """Unique, readable name of the case."""
        return f"{self.dtype} {self.path} {self.shape}" + (" rounded" if self.rounded else "")

    @property
    def operand(self) -> torch.dtype:
        """Dtype of A and B."""
        return DTYPES[self.dtype]

    @property
    def accumulator(self) -> torch.dtype:
        """Dtype of the sums."""
        return torch.int32 if self.operand is torch.int8 else torch.float32

    @property
    def output(self) -> torch.dtype:
        """Dtype of C."""
        return self.operand if self.rounded else self.accumulator

    @property
    def flops(self) -> int:
        """Multiplications and additions of one launch."""
        return 2 * self.m * self.k * self.n

    @property
    def magnitude(self) -> int:
        """Largest operand integer with exact sums: K·a² within the accumulator (computed, not assumed)."""
        magnitude = exact_magnitude(self.operand, self.k, accumulator_bits=30 if self.dtype == "int8" else 24)
        if self.dtype.startswith("fp8"):
            magnitude = min(magnitude, FP8_MAGNITUDE)
        if self.rounded and self.dtype == "fp16":
            # The variance of a product of two integers uniform in [-a, a] is (a(a + 1)/3)².
            while magnitude > 1 and FP16_SIGMAS * magnitude * (magnitude + 1) / 3 * self.k**0.5 > FP16_MAX:
                magnitude -= 1
        return magnitude


def exact_plans(backend: str, device: torch.device) -> tuple[Plan, ...]:
    """Return the products of `gemm.exact`; the same on every GPU of a kind."""
    if backend != "cuda":
        # The dtypes take turns over the shapes: a ballot of each costs a few milliseconds on one CPU thread.
        dtypes = ("bf16", "fp32", "int8")
        plain = [_plan(dtype, "library", shape) for dtype, shape in zip(dtypes, SHAPES_CPU, strict=True)]
        return (*plain, _plan("bf16", "library", SHAPES_CPU[0], rounded=True))
    fp8 = fp8_name(device)
    plans = [_plan(dtype, "library", shape) for dtype in ("bf16", "fp16") for shape in SHAPES_CUDA]
    plans += [_plan(dtype, "library", SHAPES_CUDA_16[0]) for dtype in ("fp32", *tf32_name(device), "int8", *fp8)]
    plans += [_plan(dtype, "library", SHAPES_CUDA_16[2]) for dtype in ("int8", *fp8)]
    plans += [_plan(dtype, "library", SHAPES_CUDA[1], rounded=True) for dtype in ("bf16", "fp16")]
    if have_triton():
        plans += [_plan(dtype, "triton", SHAPES_CUDA[1]) for dtype in ("bf16", "int8", *fp8)]
        plans += [_plan(dtype, "triton", SHAPES_CUDA[2]) for dtype in ("bf16", "fp16", "fp32", *tf32_name(device))]
    return tuple(_fitting(plan, device) for plan in plans)


def vote_plans(backend: str, device: torch.device) -> tuple[Plan, ...]:
    """Return the products of `gemm.vote`: plain library calls on full-mantissa data."""
    if backend != "cuda":
        return (_plan("bf16", "library", SHAPES_CPU[0], rounded=True), _plan("fp32", "library", SHAPES_CPU[1]))
    plans = [_plan(dtype, "library", shape, rounded=True) for dtype in ("bf16", "fp16") for shape in SHAPES_CUDA]
    plans += [_plan(dtype, "library", SHAPES_CUDA[0]) for dtype in ("fp32", *tf32_name(device))]
    plans += [_plan(dtype, "library", SHAPES_CUDA_16[0], rounded=False) for dtype in fp8_name(device)]
    return tuple(_fitting(plan, device) for plan in plans)


def fp8_name(device: torch.device) -> tuple[str, ...]:
    """Return the fp8 format of the device's matrix units, or nothing."""
    if torch.version.hip:
        arch = str(getattr(torch.cuda.get_device_properties(device), "gcnArchName", ""))
        return ("fp8e4m3fnuz",) if arch.startswith("gfx94") else ("fp8e4m3",) if arch.startswith("gfx95") else ()
    return ("fp8e4m3",) if torch.cuda.get_device_capability(device) >= (8, 9) else ()


def tf32_name(device: torch.device) -> tuple[str, ...]:
    """Return `tf32` where the matrix units have it (NVIDIA since Ampere; of AMD's parts gfx942 only)."""
    if torch.version.hip:
        arch = str(getattr(torch.cuda.get_device_properties(device), "gcnArchName", ""))
        return ("tf32",) if arch.startswith("gfx942") else ()
    return ("tf32",) if torch.cuda.get_device_capability(device) >= (8, 0) else ()


def _plan(dtype: str, path: str, shape: tuple[int, int, int], *, rounded: bool = False) -> Plan:
    m, k, n = shape
    return Plan(dtype=dtype, path=path, m=m, k=k, n=n, rounded=rounded)


def _fitting(plan: Plan, device: torch.device) -> Plan:
    """Halve the large shapes on a device with little memory."""
    if (
        torch.cuda.get_device_properties(device).total_memory >= SMALL_MEMORY_BYTES
        or min(plan.m, plan.n) < SHAPES_CUDA[1][0]
    ):
        return plan
    shape = (plan.m // 2, plan.k // 2, plan.n // 2)
    return _plan(plan.dtype, plan.path, shape, rounded=plan.rounded)


def multiplier(plan: Plan, a: torch.Tensor, bt: torch.Tensor) -> Callable[[torch.Tensor], None]:
    """Return a function that writes a · btᵀ once into the output it is given, by the plan's path."""
    if not a.is_cuda:
        return _cpu_multiplier(a, bt)
    b = bt.t()
    if plan.path == "triton":
        precision = "tf32" if plan.dtype == "tf32" else "ieee"
        return lambda out: multiply_on_device(a, bt, out, precision)
    if plan.dtype == "int8":
        return lambda out: _discard(torch._int_mm(a, b, out=out))  # noqa: SLF001 - the only int8 product torch has
    if plan.dtype.startswith("fp8"):
        one = torch.ones((), device=a.device)
        options: dict[str, Any] = {
            "scale_a": one,
            "scale_b": one,
            "out_dtype": plan.output,
            "use_fast_accum": False,
        }
        return lambda out: _discard(torch._scaled_mm(a, b, **options, out=out))  # noqa: SLF001 - the fp8 product
    if plan.output is not a.dtype:
        return lambda out: _discard(torch.mm(a, b, out_dtype=plan.output, out=out))
    return lambda out: _discard(torch.mm(a, b, out=out))


def _discard(result: torch.Tensor) -> None:
    del result


def _cpu_multiplier(a: torch.Tensor, bt: torch.Tensor) -> Callable[[torch.Tensor], None]:
    """Multiply in float32, which is exact for the plans' integers, and convert: rounding is a step of its own."""
    left, right = a.to(torch.float32), bt.to(torch.float32).t()
    sums = torch.empty(len(a), len(bt), dtype=torch.float32)

    def multiply(out: torch.Tensor) -> None:
        torch.mm(left, right, out=sums)
        out.copy_(sums)

    return multiply


def accumulator_of(plan: Plan, a: torch.Tensor, bt: torch.Tensor) -> Accumulator | None:
    """Return what recomputes a piece of the unrounded output, or None if the output is not rounded."""
    if not plan.rounded:
        return None

    def recompute(rows: slice, columns: slice) -> torch.Tensor:
        return a[rows].to(torch.float32) @ bt[columns].to(torch.float32).t()

    return recompute
