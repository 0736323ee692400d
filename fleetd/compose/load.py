"""Runs the duty-cycle load (`python -m burnin load`) in a process of its own and reads its lines."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from fleetd.burner import LEASH
from fleetd.ports import BurnerError

STOP_S = 10.0
"""After SIGTERM; a load that is stuck in a driver is then left to the kernel."""


def run_load(plan: Mapping[str, Any], *, backend: str, device: int) -> Iterator[dict[str, Any]]:
    """Start the load with a plan and yield its JSON lines as they come.

    Raises:
        BurnerError: It could not be started, or ended with another exit code than 0; its last words are the message.
    """
    leash = (sys.executable, "-I", "-S", "-c", LEASH, str(os.getpid()))  # however this process ends, the load ends too
    command = [*leash, sys.executable, "-P", "-m", "burnin", "load", "--backend", backend, "--device", str(device)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None and child.stdout is not None and child.stderr is not None  # noqa: S101, PT018
        try:
            child.stdin.write(json.dumps(plan))
            child.stdin.close()
            for line in child.stdout:
                try:
                    yield json.loads(line)
                except ValueError:
                    raise BurnerError(f"the load said {line.strip()[:80]!r}, which is no JSON") from None
            words = child.stderr.read().strip().splitlines()
            if child.wait() != 0:
                raise BurnerError(words[-1] if words else f"the load ended with exit code {child.returncode}")
        except BrokenPipeError:
            words = child.stderr.read().strip().splitlines()
            raise BurnerError(words[-1] if words else "the load ended before it had its plan") from None
        finally:
            if child.poll() is None:
                child.terminate()
                try:
                    child.wait(timeout=STOP_S)
                except subprocess.TimeoutExpired:
                    child.kill()
