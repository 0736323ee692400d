"""For all tests: what is found by searching is found or not, however busy the machine is; a database of their own."""

from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.postgres import REASON, Cluster

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


@pytest.fixture(name="postgres", scope="session")
def _postgres() -> Iterator[Cluster]:
    """A real PostgreSQL, made by whoever asks first; skips where there is none."""
    if REASON:
        pytest.skip(REASON)
    with Cluster() as cluster:
        yield cluster
