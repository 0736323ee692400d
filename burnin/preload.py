"""What the fork server imports once, so that eight children do not import torch side by side. Imported by it alone.

A library that does not load is left to the child: it has a line to its parent on which to say so.
"""

from contextlib import suppress
from importlib import import_module

for module in ("torch", "burnin.child", "burnin.workloads.gemm", "burnin.workloads.step"):
    with suppress(ImportError, OSError):
        import_module(module)
