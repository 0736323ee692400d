"""Tests that need a real GPU can be run where there is one: on hosts with torch, pytest, and hardly anything else."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
ABSENT = (
    *("alembic", "asyncpg", "fastapi", "grpc", "httpx", "hypothesis", "playwright", "psycopg", "pytest_timeout"),
    *("schemathesis", "sqlalchemy", "starlette", "uvicorn", "xdist"),
)
"""What only the controller, the agent's line to it, or other tests need."""
WITHOUT = f"""
import sys
class Absent:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in {set(ABSENT)!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent)
import pytest
sys.exit(pytest.main(sys.argv[1:]))
"""


def test_they_are_found_without_what_such_a_host_does_not_have() -> None:
    command = [sys.executable, "-c", WITHOUT, "--collect-only", "-q", "-p", "no:cacheprovider", "tests/gpu"]
    # Plugins that are installed here are not to be loaded by themselves, either.
    environ = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)}
    for inherited in ("PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER", "PYTEST_PLUGINS"):
        environ.pop(inherited, None)
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    files = {line.partition("::")[0] for line in done.stdout.splitlines() if "::" in line}
    assert files == {str(path.relative_to(ROOT)) for path in (ROOT / "tests" / "gpu").glob("test_*.py")}
