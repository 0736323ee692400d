"""The largest fp8 integers whose products a matrix unit adds up exactly: measured, for the table in `burnin.arch`.

Matrix units may keep fewer bits than float32 between the steps of an fp8 product, and how many is in no manual.
"""

from collections.abc import Callable

import torch

from burnin.golden import largest_integer
from burnin.keys import derive
from burnin.seed import fill_integers

Multiply = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], None]
"""(a, bt, out): writes a · btᵀ, float32."""


def exact_fp8_magnitude(
    dtype: torch.dtype, multiply: Multiply, *, device: torch.device, k: int = 8192, edge: int = 256, seed: int = 1
) -> int:
    """Return the largest a such that random integers in [-a, a] and all smaller ones give exact sums; 0 if none does.

    Args:
        dtype: an fp8 format.
        multiply: the product to examine.
        device: where it runs.
        k: length of the sums; the error grows with it.
        edge: rows and columns of the result, each of which is a trial.
        seed: of the integers.
    """
    found = 0
    for magnitude in range(1, largest_integer(dtype) + 1):
        a, bt = (torch.empty(edge, k, dtype=dtype, device=device) for _ in range(2))
        fill_integers(a, derive(seed, "fp8", magnitude, "a"), magnitude)
        fill_integers(bt, derive(seed, "fp8", magnitude, "b"), magnitude)
        out = torch.full((edge, edge), float("nan"), dtype=torch.float32, device=device)
        multiply(a, bt, out)
        right = a.cpu().to(torch.float64) @ bt.cpu().to(torch.float64).t()
        if not torch.equal(out.cpu().to(torch.float64), right):
            break
        found = magnitude
    return found
