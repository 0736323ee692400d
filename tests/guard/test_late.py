"""The loss as a number: the one that a program hands over, which its backward pass may still know."""

import pytest
import torch

from burnin.guard.late import LateLoss


@pytest.mark.filterwarnings("error")
def test_a_loss_that_a_gradient_still_hangs_on_is_a_number_like_any_other() -> None:
    loss = (torch.ones(3, requires_grad=True) * 2).sum()
    assert LateLoss().take(loss) == 6.0
    assert LateLoss().take(loss.detach()) == 6.0
    assert LateLoss().take(2.5) == 2.5


@pytest.mark.parametrize("loss", [torch.ones(2), None, "6.0", []])
def test_what_is_no_single_number_is_left_alone(loss: object) -> None:
    assert LateLoss().take(loss) is None
