"""For all tests: what is found by searching is found or not, however busy the machine is; a database of their own.

Nothing is imported here but pytest: on a host with GPUs there is torch, and hardly anything else.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.postgres import Cluster

with suppress(ModuleNotFoundError):
    from hypothesis import HealthCheck, settings

    # The same examples in every run: what a test says depends on the code alone. To look for new ones:
    # `pytest --hypothesis-profile=explore`.
    settings.register_profile("explore", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.register_profile("steady", settings.get_profile("explore"), derandomize=True)
    settings.load_profile("steady")


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """Know the setting `timeout` of pyproject.toml where there is no pytest-timeout: the settings are strict."""
    if not pluginmanager.hasplugin("timeout"):
        parser.addini("timeout", "seconds for a test; without effect: pytest-timeout is not installed")


def pytest_configure(config: pytest.Config) -> None:
    """Know the mark `timeout` there, too."""
    if not config.pluginmanager.hasplugin("timeout"):
        config.addinivalue_line("markers", "timeout(seconds): without effect: pytest-timeout is not installed")


@pytest.fixture(autouse=True)
def _log_as_it_was() -> Iterator[None]:
    """A command that a test runs sets the log up for the whole process: the next test finds it as it was."""
    try:
        import structlog  # noqa: PLC0415 - not on a host with GPUs
    except ModuleNotFoundError:
        yield
        return
    before = structlog.get_config()
    yield
    structlog.configure(**before)


@pytest.fixture(name="postgres", scope="session")
def _postgres() -> "Iterator[Cluster]":
    """A real PostgreSQL, made by whoever asks first; skips where there is none."""
    from tests.postgres import REASON, Cluster  # noqa: PLC0415 - a host with GPUs has no psycopg

    if REASON:
        pytest.skip(REASON)
    with Cluster() as cluster:
        yield cluster
