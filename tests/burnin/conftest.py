import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """The suite runs in parallel processes: threads of each would only wait for each other."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def same_numbers() -> None:
    """What a test draws does not depend on the tests before it."""
    torch.manual_seed(0)
