import pytest
import torch


@pytest.fixture(autouse=True)
def same_numbers() -> None:
    """What a test draws does not depend on the tests before it."""
    torch.manual_seed(0)
