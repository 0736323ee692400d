"""Whether the library has the product that a plan asks for: found out once, on operands of one small tile.

A torch without the operation, or one that refuses it on this GPU, says nothing of the GPU. An error of CUDA itself
does: it passes, and is this GPU's crash.
"""

from collections.abc import Callable
from dataclasses import replace

import torch

from burnin.workloads.plans import Plan, multiplier

EDGE = 64
"""Rows, columns and sums of the trial: a multiple of what any library asks for."""
OPERATIONS = {"int8": "_int_mm", "fp8e4m3": "_scaled_mm", "fp8e4m3fnuz": "_scaled_mm"}
"""Dtype → the operation of torch that multiplies it; the others go through `torch.mm`."""


def missing(plan: Plan, device: torch.device) -> str:
    """Why the library cannot compute a plan; empty when it can, and for plans that need no library of a GPU."""
    if plan.path != "library" or device.type != "cuda":
        return ""
    name = OPERATIONS.get(plan.dtype, "mm")
    if not hasattr(torch, name):
        return f"torch {torch.__version__} has no {name}"
    return refusal(f"torch.{name}", lambda: _try(replace(plan, m=EDGE, k=EDGE, n=EDGE), device))


def refusal(name: str, attempt: Callable[[], None]) -> str:
    """Why an operation is refused; empty when the attempt goes through.

    Raises:
        RuntimeError: CUDA itself failed, or memory is short: that is no refusal.
    """
    try:
        attempt()
    except (RuntimeError, TypeError, ValueError, AttributeError) as error:
        text = (str(error).strip() or "no message").splitlines()[0]
        if any(words in str(error).lower() for words in ("cuda error", "hip error", "out of memory")):
            raise
        return f"{name} is refused here: {text:.160}"
    return ""


def _try(plan: Plan, device: torch.device) -> None:
    a, bt = (torch.zeros(EDGE, EDGE, device=device).to(plan.operand) for _ in range(2))
    multiplier(plan, a, bt)(torch.empty(EDGE, EDGE, dtype=plan.output, device=device))
    torch.cuda.synchronize(device)
