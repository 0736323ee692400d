"""`sfu`: special functions and conversions, by the library and by our own kernel.

Their bits differ between vendors, so they are voted on; conversions between float formats have one right result, and
all 2**16 inputs of the 16-bit formats are compared with the CPU's.
"""

from collections.abc import Callable

import torch
from torch.nn import functional

from burnin.kernels import have_triton, special_on_device
from burnin.keys import derive
from burnin.seed import fill_bits, fill_normal
from burnin.workloads import Context
from burnin.workloads.recipes import Prepared, Recipe, Recipes

Function = Callable[[torch.Tensor], torch.Tensor]

FUNCTIONS: dict[str, Function] = {
    "exp2": torch.exp2,
    "log2": lambda x: torch.log2(x.abs()),
    "rcp": torch.reciprocal,
    "rsqrt": lambda x: torch.rsqrt(x.abs()),
    "sin": torch.sin,
    "tanh": torch.tanh,
    "erf": torch.erf,
    "softmax": lambda x: torch.softmax(x, dim=-1),
    "rmsnorm": lambda x: functional.rms_norm(x, x.shape[-1:]),
}
OWN = ("exp2", "log2", "rcp", "rsqrt", "sin", "tanh", "erf")
"""Those of our own kernel."""
SHAPE_CUDA, SHAPE_CPU = (4096, 4096), (64, 128)
FLOATS = {"bf16": torch.bfloat16, "fp16": torch.float16}
EIGHT_BITS = {"fp8e4m3": torch.float8_e4m3fn, "fp8e5m2": torch.float8_e5m2}
RANDOM_CUDA, RANDOM_CPU = 1 << 22, 1 << 14
"""Random float32 bit patterns that are rounded to 16 bits, beside all patterns of 16 bits that are widened."""


class Sfu(Recipes):
    """See the module."""

    test = "sfu"

    def recipes(self, ctx: Context) -> tuple[Recipe, ...]:
        """Functions in two dtypes, conversions; see `burnin.workloads.recipes`."""
        found = [
            Recipe(name=f"{name} library", dtype=name, exact=False, prepare=_library(dtype))
            for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16))
        ]
        if ctx.device.type == "cuda" and have_triton():
            found.append(Recipe(name="fp32 triton", dtype="fp32", exact=False, prepare=_own))
        found += [
            Recipe(name="conversions 16 bit", dtype="fp16", exact=True, prepare=_conversions),
            Recipe(name="conversions 8 bit", dtype="fp8e4m3", exact=False, prepare=_narrow),
        ]
        return tuple(found)


def _input(ctx: Context, seed: int, dtype: torch.dtype) -> torch.Tensor:
    x = torch.empty(SHAPE_CUDA if ctx.backend == "cuda" else SHAPE_CPU, dtype=dtype, device=ctx.device)
    fill_normal(x, derive(seed, "sfu"))
    return x


def _library(dtype: torch.dtype) -> Callable[[Context, int], Prepared]:
    def prepare(ctx: Context, seed: int) -> Prepared:
        x = _input(ctx, seed, dtype)
        outputs = {name: torch.empty_like(x) for name in FUNCTIONS}

        def launch() -> None:
            for name, function in FUNCTIONS.items():
                outputs[name].copy_(function(x))

        return Prepared(outputs=outputs, launch=launch)

    return prepare


def _own(ctx: Context, seed: int) -> Prepared:
    x = _input(ctx, seed, torch.float32)
    outputs = {name: torch.empty_like(x) for name in OWN}

    def launch() -> None:
        for name, output in outputs.items():
            special_on_device(output.view(-1), x.view(-1), name)

    return Prepared(outputs=outputs, launch=launch)


def _all_patterns(dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Return all 2**16 values of a 16-bit format, as a matrix."""
    return torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(dtype).view(256, 256).to(device)


def _random_words(ctx: Context, seed: int) -> torch.Tensor:
    words = torch.empty(RANDOM_CUDA if ctx.backend == "cuda" else RANDOM_CPU, dtype=torch.float32, device=ctx.device)
    fill_bits(words, derive(seed, "sfu", "words"))
    return words.view(-1, 128)


def _plain_nan(value: torch.Tensor) -> torch.Tensor:
    """Give every NaN the same bits: which NaN a conversion makes is the vendor's choice."""
    return torch.where(torch.isnan(value), torch.full_like(value, float("nan")), value)


def _convert(wide: torch.Tensor, narrow: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Widen all 16-bit values, turn them into one another, and round float32 to 16 bits."""
    done = {f"{name} to fp32": narrow[name].to(torch.float32) for name in FLOATS}
    done["bf16 to fp16"] = narrow["bf16"].to(torch.float16)
    done["fp16 to bf16"] = narrow["fp16"].to(torch.bfloat16)
    done |= {f"fp32 to {name}": wide.to(dtype) for name, dtype in FLOATS.items()}
    return {name: _plain_nan(value) for name, value in done.items()}


def _conversions(ctx: Context, seed: int) -> Prepared:
    wide = _random_words(ctx, seed)
    narrow = {name: _all_patterns(dtype, ctx.device) for name, dtype in FLOATS.items()}
    outputs = {name: torch.empty_like(value) for name, value in _convert(wide, narrow).items()}

    def launch() -> None:
        for name, value in _convert(wide, narrow).items():
            outputs[name].copy_(value)

    def truth() -> dict[str, torch.Tensor]:
        here = Context(backend=ctx.backend, device=torch.device("cpu"), inject=None, alive=ctx.alive)
        return _convert(_random_words(here, seed), {name: _all_patterns(d, here.device) for name, d in FLOATS.items()})

    return Prepared(outputs=outputs, launch=launch, truth=truth)


def _narrow(ctx: Context, seed: int) -> Prepared:
    """8-bit formats saturate or overflow as the library likes, so there is no table for them."""
    del seed
    values = _all_patterns(torch.bfloat16, ctx.device)
    outputs = {
        f"bf16 to {name}": torch.empty(values.shape, dtype=d, device=ctx.device) for name, d in EIGHT_BITS.items()
    }

    def launch() -> None:
        for output in outputs.values():
            output.copy_(values)

    return Prepared(outputs=outputs, launch=launch)
