"""`python -m burnin`."""

import os
import sys
from types import TracebackType

NOT_JUDGED = 3
"""`burnin.spec.ExitCode.NOT_JUDGED`, which is not imported yet when it may be needed."""


def _surprise(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """End after an error that nobody foresaw: Python's own exit code would be 1, which says that a GPU is bad."""
    if issubclass(kind, KeyboardInterrupt):
        os.write(2, b"burnin: stopped\n")
    else:
        sys.__excepthook__(kind, error, trace)
    os._exit(NOT_JUDGED)


if __name__ == "__main__":  # the fork server imports this module in every child, which needs nothing of it
    sys.excepthook = _surprise
    from burnin.cli import main

    sys.exit(main())
