"""Checked steps by kernels that repeat themselves, so that all of such a step is checked and not what is left of it.

By default the backward pass of attention adds up in another order each time, and so nothing that is computed after it
can be compared: in a decoder that is almost every gradient. Deterministic kernels exist, but take longer; a checked
step can afford them, a training run perhaps not. They round in another order, so that a step computed by them differs
from the same one by the default kernels as two runs of the default kernels differ from each other.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from burnin.guard.sources import is_source, named, strictly

_REFUSAL = "deterministic implementation"
"""Of torch's error where an operation has only kernels that differ from run to run."""


class Steady(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Switches deterministic algorithms on for single operations: those of `burnin.guard.sources` that it cures.

    Switched on throughout, it would make cuBLAS ask for an environment variable, and raise, in the middle of somebody's
    training, at an operation without a deterministic kernel. Here such an operation runs as ever and is remembered.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.refused: set[Any] = set()
        """Operations that have no deterministic kernel: what they make may differ as before."""
        self._named: dict[Any, str] = {}
        """Operation → its name in the table of sources; "": not there."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operation; torch's switch is put back at once."""
        del types
        kwargs = kwargs or {}
        name = self._named.get(func)
        if name is None:
            namespace, short = str(func).split(".")[:2]
            name = self._named[func] = short if namespace == "aten" and named(short) else ""
        if not name or func in self.refused or not _cured(name, args):
            return func(*args, **kwargs)
        before = torch.get_deterministic_debug_mode()
        torch.set_deterministic_debug_mode("error")
        try:
            return func(*args, **kwargs)
        except RuntimeError as error:  # raised before anything is computed
            if _REFUSAL not in str(error):
                raise
            self.refused.add(func)
        finally:
            torch.set_deterministic_debug_mode(before)
        return func(*args, **kwargs)


@contextmanager
def steadily(steady: Steady | None) -> Iterator[None]:
    """Run what is inside by steady kernels; None, or deterministic algorithms in force anyway: as it is.

    The cuDNN attention, whose backward pass has no deterministic form, is not chosen meanwhile.
    """
    if steady is None or strictly():
        yield
        return
    cudnn: bool = torch.backends.cuda.cudnn_sdp_enabled()  # type: ignore[no-untyped-call]
    torch.backends.cuda.enable_cudnn_sdp(enabled=False)
    try:
        with steady:
            yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(cudnn)


def _cured(name: str, args: Any) -> bool:
    """Whether it may differ now, and would not with deterministic algorithms."""
    cuda = any(isinstance(one, torch.Tensor) and one.is_cuda for one in args)
    return is_source(name, args, cuda=cuda, strict=False) and not is_source(name, args, cuda=cuda, strict=True)
