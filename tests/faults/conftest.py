"""The shipped catalogue, read once: it is frozen data."""

import pytest

from fleetd.config.faults import load_catalogue
from fleetd.core.faults.catalogue import Catalogue


@pytest.fixture(scope="session")
def catalogue() -> Catalogue:
    return load_catalogue()
