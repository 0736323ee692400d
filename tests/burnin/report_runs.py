"""Reports of real runs on stand-ins, made once a process: they take seconds."""

import json
import subprocess
import sys
from typing import Any

import pytest

FAULTY = (
    *("--backend", "sim", "--gpus", "4", "--host", "h01", "--seed", "11", "--inject", "gpu=2,fault=F03"),
    *("--test", "gemm.exact", "--test", "gemm.smvote", "--test", "pulse", "--test", "rate"),
)
"""A planted fault: signatures with tiles, elements and multiprocessors, records, rates."""
CPU = ("--backend", "cpu", "--gpus", "2", "--host", "h01", "--seed", "11", "--level", "self")


def report_of(arguments: tuple[str, ...], factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The report of a run with these arguments; one that was made before in this process is read again."""
    path = factory.getbasetemp() / f"report-{abs(hash(arguments))}.json"
    if not path.exists():
        command = [sys.executable, "-m", "burnin", "run", *arguments, "--json", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=550, check=False)
        assert done.returncode in {0, 1}, done.stderr
    report: dict[str, Any] = json.loads(path.read_text())
    return report
