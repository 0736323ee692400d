"""Reports of real runs on stand-ins, made once: they take seconds."""

import hashlib
import json
import subprocess
import sys
from typing import Any

import pytest

from tests.once import once

FAULTY = (
    *("--backend", "sim", "--gpus", "4", "--host", "h01", "--seed", "11", "--inject", "gpu=2,fault=F03"),
    *("--test", "gemm.exact", "--test", "gemm.smvote", "--test", "pulse", "--test", "rate"),
)
"""A planted fault: signatures with tiles, elements and multiprocessors, records, rates."""
CPU = ("--backend", "cpu", "--gpus", "2", "--host", "h01", "--seed", "11", "--level", "self")


def report_of(arguments: tuple[str, ...], factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The report of a run with these arguments, made once."""

    def make() -> str:
        command = [sys.executable, "-m", "burnin", "run", *arguments, "--json", "-"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=550, check=False)
        assert done.returncode in {0, 1}, done.stderr
        return done.stdout

    report: dict[str, Any] = json.loads(once(factory, f"report-{named(arguments)}", make))
    return report


def named(arguments: tuple[str, ...]) -> str:
    """A short name of these arguments, the same in every process."""
    return hashlib.sha256("\0".join(arguments).encode()).hexdigest()[:16]
