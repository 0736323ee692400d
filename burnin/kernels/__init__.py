"""Triton kernels, one family a file, and the one place that decides whether they run.

What belongs here: device code and its launchers. Files beside this one import triton at the top and are imported only
from the functions below, so burn-in imports and runs (on the CPU) where triton is missing.
Always true: each kernel computes exactly what a plain CPU function elsewhere in burnin computes.
"""

from functools import cache
from importlib.util import find_spec

import torch


@cache
def have_triton() -> bool:
    """Whether triton is installed (found, not imported)."""
    return find_spec("triton") is not None


def on_device(tensor: torch.Tensor) -> bool:
    """Whether the kernels can work on this tensor: CUDA (or a ROCm build of torch) with triton installed."""
    return tensor.is_cuda and have_triton()


def fill_on_device(flat: torch.Tensor, key: int, start: int, magnitude: int) -> bool:
    """Launch `burnin.kernels.fill` on a flat CUDA tensor; see `burnin.seed` for the meaning of the arguments.

    Returns:
        Always True: dtypes that the kernel does not write pass through a bounded float32 buffer on the device.
    """
    from burnin.kernels.fill import launch  # noqa: PLC0415 - imports triton

    launch(flat, key, start, magnitude)
    return True


def tile_sums_on_device(out: torch.Tensor, matrix: torch.Tensor, key: int) -> None:
    """Launch the per-tile checksum of a contiguous 2-D CUDA tensor of less than 16 GiB into the int64 tensor `out`."""
    from burnin.kernels.checksum import launch_tiles  # noqa: PLC0415 - imports triton

    launch_tiles(out, matrix, key)


def checksum_on_device(slot: torch.Tensor, raw: torch.Tensor, key: int, length_term: int) -> None:
    """Launch the flat checksum of the 4-byte-aligned uint8 CUDA tensor `raw` into the one-element int64 tensor `slot`."""
    from burnin.kernels.checksum import launch_flat  # noqa: PLC0415 - imports triton

    launch_flat(slot, raw, key, length_term)
