"""Programs that keep state in odd places: guarded, they run as unguarded, bit for bit, or are not checked."""

import ast
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

from burnin import golden
from burnin.guard import GuardConfig, ReplayGuard, hashes, late, probe, ranks
from burnin.kernels import many

STEPS = 8
CONFIG = GuardConfig(every=2)
FACTORIES = {"empty", "zeros", "ones", "full", "tensor", "arange"}


@pytest.fixture(autouse=True)
def alone(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEETD_GUARD_SOCKET", str(tmp_path_factory.getbasetemp() / "no-agent"))
    torch.set_num_threads(1)


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.relu(self.first(x)))  # type: ignore[no-any-return]


class Replaces(Plain):
    """Puts another tensor in the place of a buffer, and makes one that was not there."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("seen", None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = super().forward(x)
        self.mean = 0.9 * self.mean + 0.1 * out.detach().mean(0)
        self.seen = torch.ones(1) if self.seen is None else self.seen + 1
        return out - self.mean + 0.01 * self.seen


class Counts(Plain):
    """Keeps a number and a tensor as plain attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.before: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        out: torch.Tensor = super().forward(x) * (1 + 0.01 * self.calls)
        out = out if self.before is None else out + 0.1 * self.before
        self.before = out.detach()
        return out


def frozen() -> nn.Module:
    model = Plain()
    model.first.requires_grad_(requires_grad=False)
    return model


def steps_itself() -> nn.Module:
    model = Plain()

    def step(parameter: torch.Tensor) -> None:
        assert parameter.grad is not None
        parameter.data.add_(parameter.grad, alpha=-0.1)

    model.first.weight.register_post_accumulate_grad_hook(step)
    return model


@dataclass
class Program:
    """A training program; the same seeds guarded or not."""

    net: Callable[[], nn.Module] = Plain
    unfreeze_at: int = 0
    beside: bool = False
    """Whether a parameter outside of the model is trained, too."""
    wants_input_gradient: bool = False
    encoded: bool = False
    """Whether the micro-batch comes out of another model."""
    sees: list[Any] = field(default_factory=list)

    def run(self, *, guarded: bool) -> ReplayGuard | None:
        torch.manual_seed(3)
        model, scale, encoder = self.net(), nn.Parameter(torch.ones(())), nn.Parameter(torch.ones(8))
        optimizer = torch.optim.AdamW([*model.parameters(), *([scale] if self.beside else [])], lr=1e-2)
        guard = ReplayGuard(model, optimizer, config=CONFIG) if guarded else None

        def fn(batch: torch.Tensor) -> torch.Tensor:
            loss: torch.Tensor = (model(batch) * (scale if self.beside else 1)).square().mean()
            loss.backward()  # type: ignore[no-untyped-call]
            return loss.detach()

        for number in range(1, STEPS + 1):
            if number == self.unfreeze_at:
                model.requires_grad_(requires_grad=True)
            batch = torch.randn(6, 8, generator=torch.Generator().manual_seed(number))
            batch = batch + encoder if self.encoded else batch.requires_grad_(self.wants_input_gradient)
            optimizer.zero_grad()
            encoder.grad = None
            self.sees.append(float(guard.step(fn, batch) if guard is not None else fn(batch)))
            given = [*model.parameters(), scale, encoder, *([] if self.encoded else [batch])]
            self.sees += [None if one.grad is None else one.grad.tolist() for one in given]
            optimizer.step()
            self.sees += [one.tolist() for one in model.state_dict().values()]
        return guard


CHECKED: dict[str, dict[str, Any]] = {
    "buffers that are replaced": {"net": Replaces},
    "numbers and tensors on modules": {"net": Counts},
    "unfrozen before the calibration": {"net": frozen, "unfreeze_at": 2},
    "unfrozen later": {"net": frozen, "unfreeze_at": 5},
    "trained beside the model": {"beside": True},
    "gradients of the input": {"wants_input_gradient": True},
}
UNCHECKED: dict[str, dict[str, Any]] = {
    "an optimizer in the backward pass": {"net": steps_itself},
    "a micro-batch with a history": {"encoded": True},
}


@pytest.mark.parametrize("job", [*CHECKED, *UNCHECKED])
def test_state_in_odd_places_is_as_without_the_guard(job: str) -> None:
    plain, guarded = (Program(**(CHECKED | UNCHECKED)[job]) for _ in range(2))
    plain.run(guarded=False)
    guard = guarded.run(guarded=True)
    assert guarded.sees == plain.sees
    assert guard is not None
    report = guard.report()
    assert report["findings"] == []
    if job in CHECKED:
        assert (report["verified_steps"], report["unchecked"]) == (3, {})
    else:
        assert report["last_verified_step"] is None
        assert [why for why in report["unchecked"] if "a replay" in why]


class OddError(Exception):
    """Of the program's own."""


def test_a_replay_may_raise_anything() -> None:
    calls: list[int] = []
    model = Plain()
    guard = ReplayGuard(model, torch.optim.SGD(model.parameters()), config=CONFIG)

    def fn(batch: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        if len(calls) == 5:  # the second replay of the calibration
            raise OddError("the queue is empty")
        loss: torch.Tensor = model(batch).square().mean()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    for _ in range(STEPS):
        guard.step(fn, torch.ones(2, 8))
    assert len(calls) == STEPS + 2
    assert [note for note in guard.report()["notes"] if "OddError: the queue is empty" in note]


@pytest.mark.parametrize("loss", [torch.ones(1) * 1j, torch.empty(1, device="meta")], ids=["complex", "meta"])
def test_a_loss_that_is_no_number_is_left_alone(loss: torch.Tensor) -> None:
    assert late.LateLoss().take(loss) is None


def test_state_of_the_optimizer_that_has_no_bytes_ends_no_training() -> None:
    model = Plain()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    guard = ReplayGuard(model, optimizer, config=CONFIG)
    optimizer.state[model.last.bias]["odd"] = torch.ones(2).to_sparse()

    def fn(batch: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = model(batch).square().mean()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    for _ in range(STEPS):
        guard.step(fn, torch.ones(2, 8))
        optimizer.step()
    assert guard.last_verified_step is None
    assert [why for why in guard.report()["unchecked"] if "only plain dense tensors" in why]


def test_where_tensors_are_made_by_default_is_the_programs_affair() -> None:
    """Seen with a default that holds no values; the exact test and what it rests on are on the CPU all the same."""
    with torch.device("meta"):
        assert probe.products_are_exact(torch.device("cpu"), 5)
        plan = many.plan_of((4, 70_000), torch.device("cpu"))
    assert (plan.pieces, plan.tensor_of.tolist(), plan.piece_of.tolist()) == (3, [0, 1, 1], [0, 0, 1])


@pytest.mark.parametrize("module", [golden, hashes, late, probe, ranks, many], ids=lambda one: one.__name__)
def test_every_tensor_that_is_made_says_where(module: ModuleType) -> None:
    """With `torch.set_default_device("cuda")` pinned memory cannot be made, and a truth would be the GPU's own."""
    made = [
        call
        for call in ast.walk(ast.parse(inspect.getsource(module)))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in FACTORIES
        if isinstance(call.func.value, ast.Name) and call.func.value.id == "torch"
    ]
    assert made
    assert [ast.unparse(call) for call in made if "device" not in {one.arg for one in call.keywords}] == []
