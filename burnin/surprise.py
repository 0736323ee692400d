"""The end of a command after an error that nobody foresaw. Imports nothing that could be what fails."""

import os
import sys
from types import TracebackType

NOT_JUDGED = 3
"""`burnin.spec.ExitCode.NOT_JUDGED`, which is not imported yet when it may be needed."""


def expect(name: str) -> None:
    """Have this process end with "not judged": Python's own exit code would be 1, which says that something is bad."""

    def end(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt):
            os.write(2, f"{name}: stopped\n".encode())
        else:
            sys.__excepthook__(kind, error, trace)
        os._exit(NOT_JUDGED)

    sys.excepthook = end
