"""Gather of bags and sorted scatter of their gradients; no atomics, so the order of every sum is fixed."""

from typing import Any

import torch
import triton
import triton.language as tl


@triton.jit
def gather(
    out: "Any",
    table: "Any",
    indices: "Any",
    length: "Any",
    WIDTH: tl.constexpr,  # noqa: N803 - compile-time constants are capitals in Triton
) -> None:
    """out[bag] = sum of table[indices[bag, :]], float32; one program a bag. WIDTH: columns, a power of two."""
    bag = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, WIDTH)
    total = tl.zeros([WIDTH], dtype=tl.float32)
    for at in range(length):
        row = tl.load(indices + bag * length + at)
        total += tl.load(table + row * WIDTH + column).to(tl.float32)
    tl.store(out + bag * WIDTH + column, total)


@triton.jit
def scatter(
    out: "Any",
    gradient: "Any",
    starts: "Any",
    order: "Any",
    WIDTH: tl.constexpr,  # noqa: N803
) -> None:
    """out[n] = sum of gradient[order[starts[n] : starts[n + 1]]], float32; one program a touched row."""
    number = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, WIDTH)
    total = tl.zeros([WIDTH], dtype=tl.float32)
    first, after = tl.load(starts + number), tl.load(starts + number + 1)
    for at in range(first, after):
        bag = tl.load(order + at)
        total += tl.load(gradient + bag * WIDTH + column).to(tl.float32)
    tl.store(out + number * WIDTH + column, total)


def launch_gather(out: torch.Tensor, table: torch.Tensor, indices: torch.Tensor) -> None:
    """Sum bags; see `burnin.workloads.embedding.gather`. `indices`: (bags, length) int64."""
    gather[(len(indices),)](out, table, indices, indices.shape[1], WIDTH=table.shape[1], num_warps=1)


def launch_scatter(out: torch.Tensor, gradient: torch.Tensor, starts: torch.Tensor, order: torch.Tensor) -> None:
    """Sum gradients by row; see `burnin.workloads.embedding.scatter`."""
    scatter[(len(out),)](out, gradient, starts, order, WIDTH=gradient.shape[1], num_warps=1)
