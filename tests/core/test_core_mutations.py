"""The tests of the core test something: each of the mistakes in `mutate_core.MISTAKES` is noticed by the fast ones."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.core.mutate_core import CORE, MISTAKES, TESTS


@pytest.mark.timeout(600)  # fifty runs of the fast tests, side by side with everything else
def test_every_mistake_is_noticed_and_the_core_as_it_is_has_none() -> None:
    script = Path(__file__).with_name("mutate_core.py")
    run = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    noticed = json.loads(run.stdout)
    assert noticed.pop("none") is False, "the fast tests fail on the core as it is"
    assert noticed.keys() == MISTAKES.keys()
    assert [name for name, seen in noticed.items() if not seen] == []


def test_at_least_twenty_mistakes_each_stands_once_in_its_module() -> None:
    assert len(MISTAKES) >= 20
    for name, (module, old, new, first) in MISTAKES.items():
        assert (CORE / f"{module}.py").read_text().count(old) == 1, name
        assert old != new
        assert first in TESTS
