"""The fork server ends with the run, also while it imports."""

import os
import subprocess
import sys

# Without torch, which takes seconds to import and changes nothing here.
SERVER = (
    "import sys; sys.modules['torch'] = None; import burnin.processes.preload; "
    "print('up', flush=True); sys.stdin.read()"
)
RUN = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {SERVER!r}])"


def test_a_fork_server_does_not_outlive_its_run() -> None:
    reader, writer = os.pipe()  # stays open: only a signal ends who reads from it
    with subprocess.Popen([sys.executable, "-c", RUN], stdin=reader, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == "up\n"
        run.kill()
        assert run.stdout.read() == ""  # the last who could write has ended
    os.close(reader)
    os.close(writer)
