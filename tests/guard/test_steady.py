"""Checked steps by deterministic kernels: what is switched on, for which operations, and what it changes."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from burnin.guard import GuardConfig, ReplayGuard
from burnin.guard.steady import Steady, steadily

STEPS = 9


@pytest.fixture(autouse=True)
def two_threads(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """On a CPU with several threads an accumulating `index_put` is documented to differ, and strictly it does not."""
    monkeypatch.setenv("FLEETD_GUARD_SOCKET", str(tmp_path_factory.getbasetemp() / "no-agent"))
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_deterministic_debug_mode(0)
    torch.set_num_threads(before)


class Watch(TorchDispatchMode):
    """What torch's switch says while each operation runs; entered before `Steady`, it is asked after it."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        self.seen[str(func).split(".")[1]] = torch.get_deterministic_debug_mode()
        return func(*args, **(kwargs or {}))


def test_the_switch_is_on_for_the_operations_that_it_cures_and_for_no_other() -> None:
    watch, table = Watch(), torch.zeros(4, requires_grad=True)
    with watch, steadily(Steady()):
        assert not torch.backends.cuda.cudnn_sdp_enabled()
        (table[torch.tensor([1, 1, 2])] * 2).sum().backward()
    on = {name: mode for name, mode in watch.seen.items() if mode}
    assert len(on) == 1, watch.seen
    assert "index_put" in next(iter(on)), on
    assert set(on.values()) == {2}
    assert "mul" in watch.seen
    assert torch.get_deterministic_debug_mode() == 0
    assert torch.backends.cuda.cudnn_sdp_enabled()
    assert table.grad is not None
    assert table.grad.tolist() == [0, 4, 2, 0]


def test_what_has_no_deterministic_kernel_runs_as_ever_and_is_remembered() -> None:
    steady, x = Steady(), torch.zeros(4)
    with steadily(steady):
        x.put_(torch.tensor([1]), torch.tensor([5.0]))
        x.put_(torch.tensor([2]), torch.tensor([6.0]))
    assert x.tolist() == [0, 5, 6, 0]
    assert [str(one) for one in steady.refused] == ["aten.put_.default"]
    assert torch.get_deterministic_debug_mode() == 0


def test_other_errors_pass_and_leave_the_switch_as_it_was() -> None:
    torch.set_deterministic_debug_mode("warn")
    with pytest.raises(IndexError), steadily(Steady()):
        torch.zeros(3).index_put_((torch.tensor([7]),), torch.ones(1), accumulate=True)
    assert torch.get_deterministic_debug_mode() == 1
    assert torch.backends.cuda.cudnn_sdp_enabled()


class Table(nn.Module):
    """Rows of a table, picked by indexing: its backward pass accumulates."""

    def __init__(self) -> None:
        super().__init__()
        self.rows, self.out = nn.Parameter(torch.randn(5, 8)), nn.Linear(8, 1)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.out(torch.tanh(self.rows[ids])).mean()


def train(config: GuardConfig | None, *, picky: bool = False) -> tuple[list[float], dict[str, Any], str]:
    """Losses, report, text; None: without a guard. picky: the step needs the cuDNN attention."""
    torch.manual_seed(1)
    model = Table()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    guard = ReplayGuard(model, optimizer, config=config or GuardConfig())

    def fn(ids: torch.Tensor) -> torch.Tensor:
        if picky and not torch.backends.cuda.cudnn_sdp_enabled():
            raise RuntimeError("No available kernel. Aborting execution.")
        loss = model(ids)
        loss.backward()
        return loss.detach()

    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        ids = torch.randint(5, (32,))
        losses.append(float(guard.step(fn, ids) if config else fn(ids)))
        optimizer.step()
    return losses, guard.report(), guard.report_text()


def test_all_of_a_checked_step_is_checked() -> None:
    _, as_is, text = train(GuardConfig(every=2))
    assert as_is["calibration"]["share"] < 1
    assert "GuardConfig(steady=True)" in text
    _, steady, text = train(GuardConfig(every=2, steady=True))
    assert steady["calibration"]["share"] == 1
    assert steady["calibration"]["unsound"] == ""
    assert steady["verified_steps"] == 3
    assert steady["findings"] == []
    assert any("deterministic kernels" in note for note in steady["notes"])


def test_with_deterministic_algorithms_in_force_training_is_the_unguarded_one_bit_for_bit() -> None:
    torch.set_deterministic_debug_mode("error")
    plain, _, _ = train(None)
    guarded, report, _ = train(GuardConfig(every=2, steady=True))
    assert guarded == plain
    assert report["calibration"]["share"] == 1


def test_where_a_step_cannot_run_so_it_runs_as_the_program_has_it() -> None:
    plain, _, _ = train(None, picky=True)
    guarded, report, _ = train(GuardConfig(every=2, steady=True), picky=True)
    assert guarded == pytest.approx(plain, rel=1e-6)
    assert report["verified_steps"] == 3
    assert any("as the others" in note and "No available kernel" in note for note in report["notes"])


def test_compiled_kernels_are_left_alone() -> None:
    model = torch.compile(Table(), backend="aot_eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    guard = ReplayGuard(model, optimizer, config=GuardConfig(every=2, steady=True))

    def fn(ids: torch.Tensor) -> torch.Tensor:
        loss = model(ids)
        loss.backward()
        return loss.detach()

    for _ in range(5):
        optimizer.zero_grad()
        guard.step(fn, torch.tensor([1, 1, 3]))
        optimizer.step()
    assert any("torch.compile" in note for note in guard.report()["notes"])
