"""What the fork server imports once, so that eight children do not import torch side by side. Imported by it alone.

A library that does not load is left to the child: it has a line to its parent on which to say so. The imports take
seconds, in which the server hears nothing: if the run ends meanwhile, the kernel ends it, or it would outlive the run
and hold its standard error open.
"""

import ctypes
import signal
import sys
from contextlib import suppress
from importlib import import_module
from types import TracebackType

_PR_SET_PDEATHSIG = 1


def _tell(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Say nothing of a child whose run was stopped before it had told the child what to do: that ends it, rightly."""
    if not issubclass(kind, EOFError):
        sys.__excepthook__(kind, error, trace)


sys.excepthook = _tell

ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
for module in ("torch", "burnin.processes.child", "burnin.workloads.gemm", "burnin.workloads.step"):
    with suppress(ImportError, OSError):
        import_module(module)
