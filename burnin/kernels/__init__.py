"""Triton kernels, one family a file, and the one place that decides whether they run.

What belongs here: device code and its launchers. Files beside this one import triton at the top and are imported only
from the functions below, so burn-in imports and runs (on the CPU) where triton is missing.
Always true: each kernel computes exactly what a plain CPU function elsewhere in burnin computes.
"""

from functools import cache
from importlib.util import find_spec
from typing import Any

import torch


@cache
def have_triton() -> bool:
    """Whether triton is installed (found, not imported)."""
    return find_spec("triton") is not None


def on_device(tensor: torch.Tensor) -> bool:
    """Whether the kernels can work on this tensor: CUDA (or a ROCm build of torch) with triton installed."""
    return tensor.is_cuda and have_triton()


def fill_on_device(flat: torch.Tensor, key: int, start: int, mode: int) -> None:
    """Launch `burnin.kernels.fill` on a flat CUDA tensor; see there for `mode`."""
    from burnin.kernels.fill import launch  # noqa: PLC0415 - imports triton

    launch(flat, key, start, mode)


def tile_sums_on_device(out: torch.Tensor, matrix: torch.Tensor, key: int) -> None:
    """Launch the per-tile checksum of a contiguous 2-D CUDA tensor of at most 16 GiB into the int64 tensor `out`."""
    from burnin.kernels.checksum import launch_tiles  # noqa: PLC0415 - imports triton

    launch_tiles(out, matrix, key)


def checksum_on_device(slot: torch.Tensor, raw: torch.Tensor, key: int, length_term: int) -> None:
    """Launch the flat checksum of the 4-byte-aligned uint8 CUDA tensor `raw` into `slot` (one int64)."""
    from burnin.kernels.checksum import launch_flat  # noqa: PLC0415 - imports triton

    launch_flat(slot, raw, key, length_term)


def sums_on_device(
    addresses: tuple[int, ...],
    sizes: tuple[int, ...],
    *,
    key: int,
    device: torch.device,
    stream: int,
    plans: dict[Any, Any],
) -> torch.Tensor:
    """Launch the checksums of many tensors, without length terms; see `burnin.kernels.many.launch`."""
    from burnin.kernels.many import launch  # noqa: PLC0415 - imports triton

    return launch(addresses, sizes, key=key, device=device, stream=stream, plans=plans)


def multiply_on_device(a: torch.Tensor, bt: torch.Tensor, out: torch.Tensor, precision: str) -> None:
    """Launch our own matrix product; see `burnin.kernels.gemm.launch`."""
    from burnin.kernels.gemm import launch  # noqa: PLC0415 - imports triton

    launch(a, bt, out, precision=precision)


def same_tile_on_device(
    a: torch.Tensor, bt: torch.Tensor, out: torch.Tensor, units: torch.Tensor, *, plain: bool, precision: str, unit: str
) -> None:
    """Compute one tile on every multiprocessor; see `burnin.kernels.units.launch`."""
    from burnin.kernels.units import launch  # noqa: PLC0415 - imports triton

    launch(a, bt, out, units, plain=plain, precision=precision, unit=unit)


def special_on_device(out: torch.Tensor, x: torch.Tensor, op: str) -> None:
    """Apply a special function; see `burnin.kernels.functions.launch_special`."""
    from burnin.kernels.functions import launch_special  # noqa: PLC0415 - imports triton

    launch_special(out, x, op)


def integers_on_device(outputs: tuple[torch.Tensor, ...], words: torch.Tensor, rounds: int) -> None:
    """Compute the integer functions; see `burnin.kernels.functions.launch_integers`."""
    from burnin.kernels.functions import launch_integers  # noqa: PLC0415 - imports triton

    launch_integers(outputs, words, rounds)


def atomic_sums_on_device(out: torch.Tensor, matrix: torch.Tensor) -> None:
    """Sum columns by atomic additions; see `burnin.kernels.functions.launch_atomic_sums`."""
    from burnin.kernels.functions import launch_atomic_sums  # noqa: PLC0415 - imports triton

    launch_atomic_sums(out, matrix)


def gather_on_device(out: torch.Tensor, table: torch.Tensor, indices: torch.Tensor) -> None:
    """Sum bags of rows; see `burnin.kernels.embedding.launch_gather`."""
    from burnin.kernels.embedding import launch_gather  # noqa: PLC0415 - imports triton

    launch_gather(out, table, indices)


def scatter_on_device(out: torch.Tensor, gradient: torch.Tensor, starts: torch.Tensor, order: torch.Tensor) -> None:
    """Sum gradients by row; see `burnin.kernels.embedding.launch_scatter`."""
    from burnin.kernels.embedding import launch_scatter  # noqa: PLC0415 - imports triton

    launch_scatter(out, gradient, starts, order)


def attend_on_device(
    inputs: tuple[torch.Tensor, ...],
    outputs: tuple[torch.Tensor, ...],
    lse: torch.Tensor,
    offsets: torch.Tensor,
    blocks: torch.Tensor,
) -> None:
    """Run attention forward and backward; see `burnin.kernels.attention.launch`."""
    from burnin.kernels.attention import launch  # noqa: PLC0415 - imports triton

    (q, k, v, do), (o, dq, dk, dv) = inputs, outputs
    launch((q, k, v, do), (o, dq, dk, dv), lse, offsets, blocks)


def write_on_device(words: torch.Tensor, key: int, pattern: int, phase: int) -> None:
    """Write a pattern over memory; see `burnin.kernels.memory.launch_write`."""
    from burnin.kernels.memory import launch_write  # noqa: PLC0415 - imports triton

    launch_write(words, key, pattern, phase)


def check_on_device(
    found: torch.Tensor,
    words: torch.Tensor,
    key: int,
    pattern: int,
    phase: int,
    *,
    flip: int,
    invert: bool,
    down: bool,
) -> None:
    """Check a pattern in memory; see `burnin.kernels.memory.launch_check`."""
    from burnin.kernels.memory import launch_check  # noqa: PLC0415 - imports triton

    launch_check(found, words, key, pattern, phase, flip=flip, invert=invert, down=down)
