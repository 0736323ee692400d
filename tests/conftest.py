"""For all tests: what is found by searching is found or not, however busy the machine is; a database of their own."""

from collections.abc import Iterator

import pytest
import structlog
from hypothesis import HealthCheck, settings

from tests.postgres import REASON, Cluster

# The same examples in every run: what a test says depends on the code alone. To look for new ones:
# `pytest --hypothesis-profile=explore`.
settings.register_profile("explore", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("steady", settings.get_profile("explore"), derandomize=True)
settings.load_profile("steady")


@pytest.fixture(autouse=True)
def _log_as_it_was() -> Iterator[None]:
    """A command that a test runs sets the log up for the whole process: the next test finds it as it was."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)


@pytest.fixture(name="postgres", scope="session")
def _postgres() -> Iterator[Cluster]:
    """A real PostgreSQL, made by whoever asks first; skips where there is none."""
    if REASON:
        pytest.skip(REASON)
    with Cluster() as cluster:
        yield cluster
