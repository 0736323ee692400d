"""Which matrix products exist on which backend, and how each is computed: the table behind `burnin.workloads.gemm`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from burnin.arch import UNKNOWN, UNMEASURED_FP8_BITS, Arch, arch_of
from burnin.golden import exact_magnitude
from burnin.inject import Accumulator
from burnin.kernels import have_triton, multiply_on_device

SHAPES_CUDA = ((8192, 8192, 8192), (4096, 14336, 4096), (16384, 4096, 1024), (1023, 777, 2049))
"""(m, k, n): a large cube, the feed-forward layer of a language model, a flat one, an irregular one with tails
everywhere."""
SHAPES_CUDA_16 = ((8192, 8192, 8192), (4096, 14336, 4096), (16384, 4096, 1024), (1040, 784, 2064))
"""The same where the library wants multiples of 16 (fp8, int8)."""
SHAPES_CPU = ((256, 192, 320), (129, 77, 65), (1024, 64, 48))
SMALL_MEMORY_BYTES = 24 << 30
"""Devices with less memory than this run the cube at half the edge."""
DTYPES = {
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp64": torch.float64,
    "fp32": torch.float32,
    "tf32": torch.float32,
    "int8": torch.int8,
    "fp8e4m3": torch.float8_e4m3fn,
    "fp8e4m3fnuz": torch.float8_e4m3fnuz,
    "fp8e5m2": torch.float8_e5m2,
    "fp8e5m2fnuz": torch.float8_e5m2fnuz,
}
SHAPE_FP64 = (2048, 2048, 2048)
"""Parts for training have few fp64 units; this takes some milliseconds on the slowest."""
SHAPE_LONG_8 = (8192, 32768, 8192)
SHAPE_LONG_8_OWN = (4096, 32768, 4096)
SHAPE_LONG_16 = (8192, 16384, 8192)
SHAPE_VOTE_FP64 = (4096, 8192, 4096)
"""Large products for `gemm.vote`, which has no exact range to stay in. What a ballot costs beside its products is about
three milliseconds and one reading of every output: the share of the first falls with the length of a product, that of
the second with 1/k. Together they are 2 to 3 % of these on an H200 (`tests/bench/bench_gemm_dtypes.py`)."""
FP16_MAX = 65_504
SIGMAS = 8
"""Sums of random integers stay below eight standard deviations (the golden checks every real one)."""
ACCUMULATOR_BITS = {"int8": 30, "fp64": 29}
"""Bits of the largest possible sum, where they are not the 24 of float32: below 30 the proof can follow it."""


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
    """Whether the output has the dtype of the operands; else it has the accumulator's."""
    arch: Arch = UNKNOWN
    """Of the device that computes it: what its fp8 units add up exactly."""
    pattern: str = ""
    """Bit pattern of the operands (`burnin.workloads.patterns`); empty for random data."""

    @property
    def shape(self) -> str:
        """Shape as it appears in names: MxKxN."""
        return f"{self.m}x{self.k}x{self.n}"

    @property
    def name(self) -> str:
        """Unique, readable name of the case."""
        pattern = f" {self.pattern}" if self.pattern else ""
        return f"{self.dtype} {self.path} {self.shape}" + (" rounded" if self.rounded else "") + pattern

    @property
    def operand(self) -> torch.dtype:
        """Dtype of A and B."""
        return DTYPES[self.dtype]

    @property
    def accumulator(self) -> torch.dtype:
        """Dtype of the sums."""
        return {torch.int8: torch.int32, torch.float64: torch.float64}.get(self.operand, torch.float32)

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
        magnitude = exact_magnitude(self.operand, self.k, accumulator_bits=ACCUMULATOR_BITS.get(self.dtype, 24))
        if self.dtype.startswith("fp8"):
            magnitude = min(magnitude, self.arch.fp8_magnitude or self._below(2**UNMEASURED_FP8_BITS, magnitude))
        if self.rounded and self.dtype == "fp16":
            magnitude = self._below(FP16_MAX, magnitude)
        return magnitude

    def _below(self, limit: int, magnitude: int) -> int:
        """Largest integers, at most `magnitude`, whose sums stay below the limit.

        The variance of a product of two integers uniform in [-a, a] is (a(a + 1)/3)².
        """
        while magnitude > 1 and SIGMAS * magnitude * (magnitude + 1) / 3 * self.k**0.5 > limit:
            magnitude -= 1
        return magnitude


def exact_plans(backend: str, device: torch.device) -> tuple[Plan, ...]:
    """Return the products of `gemm.exact`; the same on every GPU of a kind."""
    if backend != "cuda":
        # The dtypes take turns over the shapes: a ballot of each costs a few milliseconds on one CPU thread.
        dtypes = ("bf16", "fp32", "int8")
        plain = [_plan(dtype, "library", shape) for dtype, shape in zip(dtypes, SHAPES_CPU, strict=True)]
        more = [_plan("fp8e4m3", "library", SHAPES_CPU[2]), _plan("fp64", "library", SHAPES_CPU[2])]
        return (*plain, *more, _plan("bf16", "library", SHAPES_CPU[0], rounded=True))
    arch = arch_of_device(device)
    fp8, tf32 = arch.fp8[:1], ("tf32",) if arch.tf32 else ()
    plans = [_plan(dtype, "library", shape) for dtype in ("bf16", "fp16") for shape in SHAPES_CUDA]
    plans += [_plan(dtype, "library", SHAPES_CUDA_16[0]) for dtype in ("fp32", *tf32, "int8", *fp8)]
    plans += [_plan(dtype, "library", SHAPES_CUDA_16[3]) for dtype in ("int8", *fp8)]
    plans += [_plan("fp64", "library", shape) for shape in (SHAPE_FP64, SHAPES_CUDA[3])]
    plans += [_plan(dtype, "library", SHAPES_CUDA[1], rounded=True) for dtype in ("bf16", "fp16")]
    if have_triton():
        plans += [_plan(dtype, "triton", SHAPES_CUDA[1]) for dtype in ("bf16", "int8", *arch.fp8)]
        plans += [_plan(dtype, "triton", SHAPES_CUDA[3]) for dtype in ("bf16", "fp16", "fp32", *tf32)]
    return tuple(_fitting(plan, device) for plan in plans)


def vote_plans(backend: str, device: torch.device) -> tuple[Plan, ...]:
    """Return the products of `gemm.vote`: plain library calls on full-mantissa data, and e5m2 by our own kernel.

    NVIDIA's library multiplies e5m2 by e4m3 only.
    """
    if backend != "cuda":
        return (_plan("bf16", "library", SHAPES_CPU[0], rounded=True), _plan("fp32", "library", SHAPES_CPU[1]))
    arch = arch_of_device(device)
    tf32 = ("tf32",) if arch.tf32 else ()
    shapes = (SHAPE_LONG_16, *SHAPES_CUDA[1:])
    plans = [_plan(dtype, "library", shape, rounded=True) for dtype in ("bf16", "fp16") for shape in shapes]
    plans += [_plan(dtype, "library", SHAPES_CUDA[0]) for dtype in tf32]
    plans.append(_plan("fp32", "library", SHAPES_CUDA[1]))  # the cube would take half of the test's time
    plans += [_plan(dtype, "library", SHAPE_LONG_8) for dtype in ("int8", *arch.fp8[:1])]
    plans.append(_plan("fp64", "library", SHAPE_VOTE_FP64))
    if have_triton():
        plans += [_plan(dtype, "triton", SHAPE_LONG_8_OWN) for dtype in arch.fp8[1:]]
    return tuple(_fitting(plan, device) for plan in plans)


def pattern_plans(backend: str, device: torch.device, patterns: Mapping[str, tuple[str, ...]]) -> tuple[Plan, ...]:
    """Return the products of `gemm.pattern`: each dtype with each of its bit patterns.

    Args:
        backend: where this runs.
        device: the same.
        patterns: dtype (`fp8` for the device's first format) → names of patterns.
    """
    if backend != "cuda":
        return tuple(
            replace(_plan(dtype, "library", SHAPES_CPU[2]), pattern=pattern)
            for dtype, named in patterns.items()
            if dtype != "fp8"
            for pattern in named
        )
    arch = arch_of_device(device)
    formats = {"fp8": arch.fp8[:1]}
    return tuple(
        replace(_fitting(_plan(dtype, "library", SHAPES_CUDA[1]), device), pattern=pattern)
        for kind, named in patterns.items()
        for dtype in formats.get(kind, (kind,))
        for pattern in named
    )


def arch_of_device(device: torch.device) -> Arch:
    """Return the facts of a device; of the CPU those that everybody has."""
    if device.type != "cuda":
        return UNKNOWN
    properties = torch.cuda.get_device_properties(device)
    named = f"sm_{properties.major}{properties.minor}"
    return arch_of(str(getattr(properties, "gcnArchName", "")) if torch.version.hip else named)


def _plan(dtype: str, path: str, shape: tuple[int, int, int], *, rounded: bool = False) -> Plan:
    m, k, n = shape
    return Plan(dtype=dtype, path=path, m=m, k=k, n=n, rounded=rounded)


def _fitting(plan: Plan, device: torch.device) -> Plan:
    """Note the device's architecture in the plan; halve the large shapes on a device with little memory."""
    plan = replace(plan, arch=arch_of_device(device))
    if (
        torch.cuda.get_device_properties(device).total_memory >= SMALL_MEMORY_BYTES
        or min(plan.m, plan.n) < SHAPES_CUDA[1][0]
    ):
        return plan
    return replace(plan, m=plan.m // 2, k=plan.k // 2, n=plan.n // 2)


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
    """Multiply in float32 (float64 stays), which is exact for the plans' integers; rounding is a step of its own."""
    wide = torch.float64 if a.dtype is torch.float64 else torch.float32
    left, right = a.to(wide), bt.to(wide).t()
    sums = torch.empty(len(a), len(bt), dtype=wide)

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
