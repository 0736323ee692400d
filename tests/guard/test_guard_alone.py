"""The guard in one process: it never changes training, whatever the step is made of, and says what it cannot check."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from burnin.examples.faults import flip
from burnin.guard import GuardConfig, ReplayGuard
from burnin.guard.hashes import Hasher, LateError
from burnin.guard.replay import room_for
from burnin.spec import GuardFinding

STEPS = 14
CONFIG = GuardConfig(every=5, peer_every=2)


@pytest.fixture(autouse=True)
def one_thread(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEETD_GUARD_SOCKET", str(tmp_path_factory.getbasetemp() / "no-agent"))
    torch.set_num_threads(1)


class Net(nn.Module):
    def __init__(self, *, recompute: bool = False) -> None:
        super().__init__()
        self.first, self.norm, self.drop = nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Dropout(0.3)
        self.second, self._recompute = nn.Linear(16, 4), recompute

    def middle(self, x: torch.Tensor) -> torch.Tensor:
        return self.drop(torch.relu(self.norm(self.first(x))))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = checkpoint(self.middle, x, use_reentrant=False) if self._recompute else self.middle(x)
        return self.second(hidden)


@dataclass
class Rig:
    """A training job, guarded or not; the same seeds either way."""

    guarded: bool
    net: Callable[[], nn.Module] = Net
    accumulate: int = 1
    scale: bool = False
    uneven: bool = False
    hook: Callable[["Rig", int, int, Any], None] = lambda *_: None
    """(rig, step, call within the step, batch): between the forward and the backward pass."""
    config: GuardConfig = CONFIG

    def __post_init__(self) -> None:
        torch.manual_seed(5)
        self.model = self.net()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.told: list[GuardFinding] = []
        self.guard = ReplayGuard(self.model, self.optimizer, config=self.config, tell=self.told.append)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, enabled=self.scale)
        self.calls = self.number = 0

    def fn(self, batch: Any) -> torch.Tensor:
        self.calls += 1
        loss = nn.functional.mse_loss(self.model(batch["x"]), batch["y"])
        self.hook(self, self.number, self.calls, batch)
        self.scaler.scale(loss).backward()
        return loss.detach()

    def train(self) -> list[float]:
        stream, losses = torch.Generator().manual_seed(6), []
        torch.manual_seed(7)
        for self.number in range(1, STEPS + 1):
            self.optimizer.zero_grad()
            for _ in range(self.accumulate):
                size = 3 + self.number % 4 if self.uneven else 6
                batch = {"x": torch.randn(size, 8, generator=stream), "y": torch.randn(size, 4, generator=stream)}
                self.calls = 0
                losses.append(float(self.guard.step(self.fn, batch) if self.guarded else self.fn(batch)))
            self.scaler.step(self.optimizer)
            self.scaler.update()
        return losses

    def end(self) -> list[torch.Tensor]:
        return [value.clone() for value in self.model.state_dict().values()]


def compiled() -> nn.Module:
    return torch.compile(Net(), backend="aot_eager")  # type: ignore[return-value]


@pytest.mark.parametrize(
    "job",
    [
        {},
        {"accumulate": 3},
        {"scale": True},
        {"uneven": True},
        {"net": lambda: Net(recompute=True)},
        {"net": compiled},
    ],
    ids=["dropout and BatchNorm", "accumulation", "scaler", "uneven", "activation checkpointing", "torch.compile"],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_a_guarded_run_is_the_unguarded_one_bit_for_bit(job: dict[str, Any]) -> None:
    plain, guarded = Rig(guarded=False, **job), Rig(guarded=True, **job)
    assert guarded.train() == plain.train()
    assert all(torch.equal(one, other) for one, other in zip(guarded.end(), plain.end(), strict=True))
    report = guarded.guard.report()
    assert report["verified_steps"] >= 2
    assert report["findings"] == []
    assert report["unchecked"] == {}
    assert report["calibration"]["unstable"] == ()


def once(rig: Rig, step: int, call: int, batch: Any) -> None:
    """A transient fault: the first run of one step is wrong."""
    del batch
    if (step, call) == (10, 1):
        rig.model.second.weight.register_hook(_spoil(rig))  # type: ignore[union-attr, operator]


def _spoil(rig: Rig) -> Callable[[torch.Tensor], torch.Tensor]:
    del rig
    fired = []

    def spoil(gradient: torch.Tensor) -> torch.Tensor:
        if fired:
            return gradient
        fired.append(1)
        wrong = gradient.clone()
        wrong[0, 0] += 1
        return wrong

    return spoil


def test_a_transient_is_found_named_and_rolled_back_before_the_update() -> None:
    plain, hit = Rig(guarded=False), Rig(guarded=True, hook=once)
    assert hit.train() == plain.train()
    report = hit.guard.report()
    assert [one["fault_class"] for one in report["findings"]] == ["chip-transient"]
    assert (report["rolled_back"], report["findings"][0]["step"], report["findings"][0]["rank"]) == (1, 10, 0)
    assert "second.weight" in report["findings"][0]["why"]
    assert [one.code for one in hit.told] == ["sdc.chip-transient"]


def test_a_replay_that_fails_changes_nothing_and_is_told() -> None:
    def exhausted(rig: Rig, step: int, call: int, batch: Any) -> None:
        del rig, batch
        if step == 10 and call > 1:
            raise torch.OutOfMemoryError("no memory left for a replay")

    plain, starved = Rig(guarded=False), Rig(guarded=True, hook=exhausted)
    assert starved.train() == plain.train()
    report = starved.guard.report()
    assert report["last_verified_step"] == 5
    assert [why for why in report["unchecked"] if "no memory" in why]
    assert report["findings"] == []


def test_a_replay_that_would_not_fit_is_not_tried() -> None:
    runs: dict[int, int] = {}

    def count(rig: Rig, step: int, call: int, batch: Any) -> None:
        del batch
        runs[step] = call
        rig.guard._replayer.need_room = lambda _before: room_for(3 << 30 if step == 10 else 1, 1 << 30)  # type: ignore[method-assign]

    plain, full = Rig(guarded=False), Rig(guarded=True, hook=count)
    assert full.train() == plain.train()
    assert (runs[10], runs[5]) == (1, 2)
    report = full.guard.report()
    (why,) = report["unchecked"]
    assert "3.0 GiB of GPU memory, and 1.0 are free" in why
    assert report["last_verified_step"] == 5


def test_what_the_step_itself_raises_passes() -> None:
    def broken(rig: Rig, step: int, call: int, batch: Any) -> None:
        del rig, call, batch
        if step in {5, 7}:
            raise KeyError(step)

    for step in (5, 7):
        rig = Rig(guarded=True, hook=lambda r, s, c, b, at=step: broken(r, s, c, b) if s == at else None)
        with pytest.raises(KeyError):
            rig.train()


def test_a_loader_that_overwrites_the_batch_is_software() -> None:
    def overwrite(rig: Rig, step: int, call: int, batch: Any) -> None:
        del rig
        if (step, call) == (10, 1):
            batch["x"].data.mul_(2)

    rig = Rig(guarded=True, hook=overwrite)
    rig.train()
    (finding,) = rig.guard.report()["findings"]
    assert (finding["fault_class"], finding["rank"]) == ("software-nondeterminism", None)


def test_what_does_not_repeat_is_listed_with_its_operation_and_not_checked() -> None:
    noise = torch.Generator().manual_seed(1)

    class Racing(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found = super().forward(x)
            return found + 1e-3 * torch.rand(found.shape, generator=noise) * self.second.bias

    rig = Rig(guarded=True, net=Racing)
    rig.train()
    report = rig.guard.report()
    listed = {one["name"]: one for one in report["calibration"]["unstable"]}
    assert "second.weight" in listed
    assert listed["second.weight"]["distinct"] > 5
    assert any("rand" in one for one in listed["second.weight"]["operations"])
    assert report["findings"] == []
    assert 0 < report["calibration"]["share"] < 1
    assert "NOT checked" in rig.guard.report_text()


def test_memory_that_changes_between_two_steps_is_memory() -> None:
    rig = Rig(guarded=True)
    step = rig.optimizer.step

    def decaying(*args: Any, **kwargs: Any) -> Any:
        found = step(*args, **kwargs)
        if rig.number == 9:
            state = rig.optimizer.state[rig.model.second.weight]  # type: ignore[index]
            flip(state["exp_avg"], 20, slice(3, 4))
        return found

    rig.optimizer.step = decaying  # type: ignore[method-assign]
    rig.train()
    assert [(one["fault_class"], one["step"]) for one in rig.guard.report()["findings"]] == [("memory", 10)]


def test_a_program_that_changes_parameters_between_steps_is_no_fault() -> None:
    class Decayed(Rig):
        def train(self) -> list[float]:
            update = self.optimizer.step

            def step(*args: Any, **kwargs: Any) -> Any:
                found = update(*args, **kwargs)
                with torch.no_grad():
                    self.model.first.weight.mul_(0.999)  # type: ignore[union-attr, operator]
                return found

            self.optimizer.step = step  # type: ignore[method-assign]
            return super().train()

    rig = Decayed(guarded=True)
    rig.train()
    report = rig.guard.report()
    assert report["findings"] == []
    assert any("at rest" in note for note in report["notes"])


def test_an_anomaly_makes_the_next_step_a_checked_one() -> None:
    rig = Rig(guarded=True, config=GuardConfig(every=1000))
    rig.train()
    assert rig.guard.report()["verified_steps"] == 0
    rig.guard.saw_gradient_norm(float("nan"))
    rig.guard.step(rig.fn, {"x": torch.randn(6, 8), "y": torch.randn(6, 4)})
    assert rig.guard.last_verified_step == STEPS + 1


def test_the_callback_form_guards_a_function_of_any_arguments() -> None:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    guard = ReplayGuard(model, optimizer, every=2)

    def training_step(net: nn.Module, inputs: dict[str, torch.Tensor], *, weight: float) -> torch.Tensor:
        loss = (net(inputs["x"]) * weight).square().mean()
        loss.backward()
        return loss.detach()

    guarded = guard.wrap(training_step)
    for _ in range(8):
        optimizer.zero_grad()
        assert guarded(model, {"x": torch.ones(3, 4)}, weight=2.0).ndim == 0
        optimizer.step()
    assert guard.report()["verified_steps"] == 3


def test_a_device_that_hangs_is_waited_for_up_to_the_deadline_only() -> None:
    times = iter(range(10_000))

    class Event:
        def record(self, _stream: object) -> None: ...
        def query(self) -> bool:
            return False

    hasher = Hasher(monotonic=lambda: float(next(times)), deadline_s=5.0)
    with pytest.raises(LateError, match="5 s"):
        hasher.wait_for(Event())
