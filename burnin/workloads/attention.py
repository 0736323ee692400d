"""`attention`: causal attention over sequences of many lengths, forward and backward, and the library's forward.

The lengths are those of recommendation and language models: a few long sequences, many short ones, tails everywhere.
"""

from collections.abc import Callable

import torch
from torch.nn import functional

from burnin.kernels import attend_on_device, on_device
from burnin.keys import derive
from burnin.seed import fill_normal
from burnin.workloads import Context
from burnin.workloads.recipes import Prepared, Recipe, Recipes

LENGTHS_CUDA = (4096, 2048, 1337, 1024, 777, 513, 512, 511, 257, 129, 128, 127, 65, 64, 63, 33, 17, 3, 2, 1)
LENGTHS_CPU = (40, 17, 1)
HEADS_CUDA, HEADS_CPU = 16, 2
DIMS_CUDA, DIMS_CPU = (64, 128), (32,)
DENSE_CUDA, DENSE_CPU = (4, 16, 2048, 64), (1, 2, 48, 32)
"""(batch, heads, tokens, dim) of the library's."""
BLOCK = 64
"""Tokens of a block of the kernel; equal to `burnin.kernels.attention.BLOCK`."""
PASSES = 3.5
"""Work of forward and backward, in forwards: the backward has five products, the forward two."""
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}

Quadruple = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


class Attention(Recipes):
    """See the module."""

    test = "attention"

    def recipes(self, ctx: Context) -> tuple[Recipe, ...]:
        """Our own in each dtype and width, the library's forward in each dtype; see `burnin.workloads.recipes`."""
        cuda = ctx.backend == "cuda"
        lengths, heads, dense = (LENGTHS_CUDA, HEADS_CUDA, DENSE_CUDA) if cuda else (LENGTHS_CPU, HEADS_CPU, DENSE_CPU)
        found = []
        for name, dtype in DTYPES.items():
            for dim in DIMS_CUDA if cuda else DIMS_CPU:
                flops = int(PASSES * 2 * heads * dim * sum(n * n for n in lengths))  # causal: half of 4·n²·d
                prepare = _jagged(dtype, lengths, heads, dim)
                found.append(
                    Recipe(name=f"{name} jagged {heads}x{dim}", dtype=name, exact=False, prepare=prepare, flops=flops)
                )
            batch, heads_, tokens, dim = dense
            flops = 2 * batch * heads_ * tokens * tokens * dim
            shape = "x".join(map(str, dense))
            found.append(
                Recipe(name=f"{name} sdpa {shape}", dtype=name, exact=False, prepare=_sdpa(dtype, dense), flops=flops)
            )
        return tuple(found)


def layout(lengths: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the borders of the sequences (int32) and (sequence, first token) of every block (int32, two columns)."""
    offsets = torch.tensor((0, *lengths), dtype=torch.int32).cumsum(0, dtype=torch.int32)
    blocks = [(number, first) for number, length in enumerate(lengths) for first in range(0, length, BLOCK)]
    return offsets, torch.tensor(blocks, dtype=torch.int32)


def attend(inputs: Quadruple, lengths: tuple[int, ...], wide: torch.dtype) -> Quadruple:
    """Compute o, dq, dk, dv with plain products: the definition.

    Args:
        inputs: q, k, v and the gradient of the output, (tokens, heads, dim).
        lengths: of the sequences.
        wide: dtype in which everything is computed; float64 makes it a reference.

    Returns:
        The same shape, dtype `wide`.
    """
    results = tuple(torch.empty(inputs[0].shape, dtype=wide) for _ in inputs)
    begin = 0
    for length in lengths:
        rows = slice(begin, begin + length)
        begin += length
        q, k, v, do = (one[rows].to(wide).transpose(0, 1) for one in inputs)  # (heads, tokens, dim)
        scale = q.shape[-1] ** -0.5
        future = torch.ones(length, length, dtype=torch.bool).triu(1)
        shares = torch.softmax((q @ k.mT * scale).masked_fill(future, float("-inf")), dim=-1)
        o = shares @ v
        change = shares * (do @ v.mT - (do * o).sum(dim=-1, keepdim=True))
        found = (o, change @ k * scale, change.mT @ q * scale, shares.mT @ do)
        for result, one in zip(results, found, strict=True):
            result[rows] = one.transpose(0, 1)
    o, dq, dk, dv = results
    return o, dq, dk, dv


def _jagged(dtype: torch.dtype, lengths: tuple[int, ...], heads: int, dim: int) -> Callable[[Context, int], Prepared]:
    def prepare(ctx: Context, seed: int) -> Prepared:
        shape = (sum(lengths), heads, dim)
        q, k, v, do = (torch.empty(shape, dtype=dtype, device=ctx.device) for _ in range(4))
        for name, one in (("q", q), ("k", k), ("v", v), ("do", do)):
            fill_normal(one, derive(seed, "attention", name))
        outputs = {name: torch.empty(shape, dtype=torch.float32, device=ctx.device) for name in ("o", "dq", "dk", "dv")}
        lse = torch.empty(shape[:2], dtype=torch.float32, device=ctx.device)
        offsets, blocks = (one.to(ctx.device) for one in layout(lengths))

        def launch() -> None:
            if on_device(q):
                attend_on_device((q, k, v, do), tuple(outputs.values()), lse, offsets, blocks)
                return
            for output, value in zip(outputs.values(), attend((q, k, v, do), lengths, torch.float32), strict=True):
                output.copy_(value)

        return Prepared(outputs=outputs, launch=launch)

    return prepare


def _sdpa(dtype: torch.dtype, shape: tuple[int, int, int, int]) -> Callable[[Context, int], Prepared]:
    def prepare(ctx: Context, seed: int) -> Prepared:
        q, k, v = (torch.empty(shape, dtype=dtype, device=ctx.device) for _ in range(3))
        for name, one in (("q", q), ("k", k), ("v", v)):
            fill_normal(one, derive(seed, "attention", "sdpa", name))
        output = torch.empty(shape, dtype=dtype, device=ctx.device)

        def launch() -> None:
            output.copy_(functional.scaled_dot_product_attention(q, k, v, is_causal=True))

        return Prepared(outputs={"o": output}, launch=launch)

    return prepare
