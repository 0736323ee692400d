"""What the program itself changes is no fault, and what a replay would change once more is not replayed."""

import copy
import socket
import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from burnin.examples.faults import flip
from burnin.guard import GuardConfig, ReplayGuard
from burnin.guard.tell import tell_agent
from burnin.guard.touch import Touch
from burnin.spec import GuardFinding

STEPS, CHANGED_AT = 12, 7
TOUCHED = "state at rest: the program changed it between the update and the step"


@pytest.fixture(autouse=True)
def alone(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEETD_GUARD_SOCKET", str(tmp_path_factory.getbasetemp() / "no-agent"))
    torch.set_num_threads(1)


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))


class Momentum(nn.Module):
    """A second network that follows the first in each forward pass, as MoCo has it."""

    def __init__(self, follow: Callable[[nn.Parameter, nn.Parameter], None]) -> None:
        super().__init__()
        self.query, self._follow = mlp(), follow
        self.key = copy.deepcopy(self.query).requires_grad_(requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for one, other in zip(self.query.parameters(), self.key.parameters(), strict=True):
            self._follow(one, other)
        return self.query(x) - self.key(x)  # type: ignore[no-any-return]


def assigns(one: nn.Parameter, other: nn.Parameter) -> None:
    other.data = other.data * 0.9 + one.data * 0.1


def writes(one: nn.Parameter, other: nn.Parameter) -> None:
    other.data.mul_(0.9).add_(one.data, alpha=0.1)


class Codebook(nn.Module):
    """Puts another parameter in the place of one in each forward pass, as VQ-VAEs do."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.mean = mlp(), nn.Parameter(torch.zeros(4), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.net(x)
        self.mean = nn.Parameter(0.9 * self.mean + 0.1 * out.detach().mean(0), requires_grad=False)
        return out - self.mean  # type: ignore[no-any-return]


Between = Callable[[nn.Module, torch.optim.Optimizer, dict[str, Any]], None]


def load_model(model: nn.Module, optimizer: torch.optim.Optimizer, kept: dict[str, Any]) -> None:
    del optimizer
    model.load_state_dict(kept["model"])


def load_optimizer(model: nn.Module, optimizer: torch.optim.Optimizer, kept: dict[str, Any]) -> None:
    del model
    optimizer.load_state_dict(kept["optimizer"])


def forget_state(model: nn.Module, optimizer: torch.optim.Optimizer, kept: dict[str, Any]) -> None:
    del model, kept
    optimizer.state = defaultdict(dict)


def widen(model: nn.Module, optimizer: torch.optim.Optimizer, kept: dict[str, Any]) -> None:
    del optimizer, kept
    model.double().float()[0].weight.data = model[0].weight.data * 0.5  # type: ignore[index]


def merge(model: nn.Module, optimizer: torch.optim.Optimizer, kept: dict[str, Any]) -> None:
    del optimizer, kept
    with torch.no_grad():
        model[0].weight.add_(0.01)  # type: ignore[index]


def decay(model: nn.Module, optimizer: torch.optim.Optimizer, kept: dict[str, Any]) -> None:
    del optimizer, kept
    flip(model[0].weight, 20, slice(3, 4))  # type: ignore[index]


@dataclass
class Program:
    net: Callable[[], nn.Module] = mlp
    between: Between | None = None
    backward_later: bool = False
    updates_inside: bool = False
    zeroes: bool = True
    sees: list[Any] = field(default_factory=list)

    def run(self, *, guarded: bool) -> ReplayGuard | None:
        torch.manual_seed(3)
        model, kept = self.net(), {}
        optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], lr=1e-2)
        guard = ReplayGuard(model, optimizer, config=GuardConfig(every=2)) if guarded else None

        def fn(batch: torch.Tensor) -> torch.Tensor:
            loss: torch.Tensor = model(batch).square().mean()
            if not self.backward_later:
                loss.backward()  # type: ignore[no-untyped-call]
            if self.updates_inside:
                optimizer.step()
            return loss

        for number in range(1, STEPS + 1):
            batch = torch.randn(6, 8, generator=torch.Generator().manual_seed(number))
            optimizer.zero_grad(set_to_none=self.zeroes)
            loss = guard.step(fn, batch) if guard is not None else fn(batch)
            if self.backward_later:
                loss.backward()
            if not self.updates_inside:
                optimizer.step()
            if number == 2:
                kept = copy.deepcopy({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
            if number == CHANGED_AT and self.between is not None:
                self.between(model, optimizer, kept)
            moments = [one for state in optimizer.state.values() for one in state.values()]
            self.sees += [float(loss.detach()), *(one.tolist() for one in [*model.state_dict().values(), *moments])]
        return guard


def report_of(**given: Any) -> dict[str, Any]:
    """Of a guarded run that must be the unguarded one, bit for bit."""
    plain, guarded = Program(**given), Program(**given)
    plain.run(guarded=False)
    guard = guarded.run(guarded=True)
    assert guarded.sees == plain.sees
    assert guard is not None
    return guard.report()


@pytest.mark.parametrize("between", [load_model, load_optimizer, forget_state, widen, merge])
def test_what_the_program_changes_once_is_no_memory_fault(between: Between) -> None:
    report = report_of(between=between)
    assert (report["findings"], report["unchecked"]) == ([], {TOUCHED: 1})


def test_memory_that_decays_is_one() -> None:
    report = report_of(between=decay)
    assert [(one["fault_class"], one["step"]) for one in report["findings"]] == [("memory", CHANGED_AT + 1)]


@pytest.mark.parametrize(
    "given",
    [
        {"net": lambda: Momentum(assigns)},
        {"net": lambda: Momentum(writes)},
        {"net": Codebook},
        {"updates_inside": True},
        {"backward_later": True},
        {"backward_later": True, "zeroes": False},
    ],
    ids=["assigned", "written", "replaced", "an update inside", "backward later", "backward later, zeros"],
)
def test_what_a_replay_would_do_again_is_not_replayed(given: dict[str, Any]) -> None:
    report = report_of(**given)
    assert (report["findings"], report["verified_steps"]) == ([], 0)
    assert [note for note in report["notes"] if note.startswith("nothing is checked")]


def test_writes_are_told_and_reads_are_not() -> None:
    tensors = [torch.zeros(3), None, nn.Parameter(torch.zeros(2))]
    touch = Touch(tensors)
    assert tensors[0] is not None
    tensors[0].sum()
    assert not touch.told_of(tensors)
    assert touch.told_of([tensors[0].clone(), *tensors[1:]])
    assert touch.told_of(tensors[:2])
    tensors[0].add_(1)
    assert touch.told_of(tensors)


def test_what_has_no_place_or_no_count_is_told_apart_all_the_same() -> None:
    with torch.inference_mode():
        frozen = torch.ones(2)
    odd = [torch.eye(3).to_sparse(), torch.empty(2, device="meta"), frozen]
    touch = Touch(odd)
    assert not touch.told_of(odd)
    assert touch.told_of([*odd[:2], torch.ones(2)])


@pytest.mark.parametrize("answer", [b"[]", b"3", b"null", b'"ok"', b"[" * 4000, b"\xff", b""])
def test_whatever_is_answered_ends_no_training(answer: bytes, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))
        listening.listen()

        def serve() -> None:
            channel, _ = listening.accept()
            with channel:
                channel.recv(1 << 16)
                channel.sendall(answer)

        server = threading.Thread(target=serve)
        server.start()
        finding = GuardFinding(
            code="sdc.memory", check="bad", fault_class="memory", gpu=None, rank=None, step=1, why="", asks=()
        )
        assert tell_agent(finding, tmp_path / "s") is False
        server.join()
