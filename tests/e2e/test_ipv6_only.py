"""A host without IPv4, not even on its loopback: agent, controller, metrics and commands find each other there, too."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

NAMESPACE = ["unshare", "--user", "--map-root-user", "--net", "sh", "-c"]
ONLY_IPV6 = 'ip link set lo up && ip address del 127.0.0.1/8 dev lo && exec "$@"'


def test_everything_works_on_ipv6_alone(tmp_path: Path) -> None:
    may = subprocess.run([*NAMESPACE, ONLY_IPV6, "sh", "true"], capture_output=True, check=False)
    if may.returncode != 0:
        pytest.skip("a network namespace of one's own is not allowed here, or `ip` is missing")
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [*NAMESPACE, ONLY_IPV6, "sh", sys.executable, "-m", "tests.e2e.ipv6_host", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=root,
        env={**os.environ, "PYTHONPATH": root},
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["ipv4"] is False, "the namespace is what it should be"
    assert '"healthy"' in found["list"], found
    assert (found["check"], found["held"]) == (0, 0), found
    assert found["agent"], found
    assert found["controller"], found
    assert "Traceback" not in found["logs"]
