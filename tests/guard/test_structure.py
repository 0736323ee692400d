"""What results are computed from, the table of operations that may differ, and what the guard learns when they do."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from burnin.guard import GuardConfig, ReplayGuard
from burnin.guard.calibrate import Calibration, withdraw
from burnin.guard.hashes import Hasher
from burnin.guard.joint import UncheckedError, wrong_pairs
from burnin.guard.judge import Verdict
from burnin.guard.learn import Learner
from burnin.guard.ranks import Alone
from burnin.guard.seen import Check
from burnin.guard.sources import is_source
from burnin.guard.structure import UNSEEN, Structure
from burnin.spec import FaultClass, GuardFinding


@pytest.fixture(autouse=True)
def settings(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("FLEETD_GUARD_SOCKET", str(tmp_path_factory.getbasetemp() / "no-agent"))
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(mode=False)


@pytest.mark.parametrize(
    ("name", "default", "strict"),
    [
        ("_scaled_dot_product_flash_attention_backward", True, False),
        ("_scaled_dot_product_efficient_attention_backward", True, False),
        ("_scaled_dot_product_cudnn_attention_backward", True, True),
        ("_scaled_dot_product_flash_attention", False, False),
        ("convolution_backward", True, False),
        ("convolution", False, False),
        ("upsample_bilinear2d_backward", True, False),
        ("upsample_nearest2d_backward", False, False),
        ("index_add", True, False),
        ("embedding_dense_backward", False, False),
        ("mm", False, False),
    ],
)
def test_the_table_knows_what_is_documented(name: str, default: bool, strict: bool) -> None:
    assert is_source(name, (), cuda=True, strict=False) is default
    assert is_source(name, (), cuda=True, strict=True) is strict
    assert not is_source(name, (), cuda=False, strict=False)


def test_the_table_looks_at_arguments() -> None:
    ones, places = torch.ones(4), torch.tensor([0, 0])
    torch.set_num_threads(2)
    put: Any = (ones, [places], torch.ones(2), True)
    assert is_source("index_put", put, cuda=False, strict=False)
    assert not is_source("index_put", put, cuda=False, strict=True)
    assert not is_source("index_put", (ones, [ones > 0], torch.ones(4), True), cuda=False, strict=False)
    assert not is_source("index_put", (ones, [places], torch.ones(1), False), cuda=False, strict=False)
    torch.set_num_threads(1)
    assert not is_source("index_put", put, cuda=False, strict=False)
    assert is_source("cumsum", (ones, 0), cuda=True, strict=False)
    assert not is_source("cumsum", (places, 0), cuda=True, strict=False)
    assert is_source("_embedding_bag_dense_backward", (*[None] * 7, 2), cuda=True, strict=False)
    assert not is_source("_embedding_bag_dense_backward", (*[None] * 7, 0), cuda=True, strict=False)


def test_a_taint_follows_the_data_and_only_the_data() -> None:
    with Structure() as mode:
        clean, other = torch.ones(4), torch.ones(4)
        copied = clean.index_copy(0, torch.tensor([0]), torch.ones(1))  # documented for CPUs, too
        after, view = copied * 2, copied[1:]
        written, whole, slots = torch.zeros(4), torch.ones(4), torch.empty(4)
        written[:2].copy_(after[:2])
        whole.add_(after)
        dirty = mode.origin(whole)
        whole.copy_(other)
        slots.copy_(other)
        summed = torch.stack([other, clean]).sum(0)
        unseen = torch.empty(4)  # as a kernel of the program's own would fill it
        read = unseen + other
    source = "aten.index_copy.default"
    assert [mode.origin(one).taint for one in (copied, after, view, written)] == [source] * 4
    assert dirty.taint == source
    assert [mode.origin(one).taint for one in (clean, other, whole, slots, summed)] == [""] * 5
    assert [mode.origin(one).taint for one in (unseen, read)] == [UNSEEN + source] * 2
    assert mode.origin(copied).place < mode.origin(after).place < mode.origin(summed).place
    assert mode.origin(None).taint == ""


class Indexing(nn.Module):
    """The gradient of an indexed tensor adds up in any order, if several threads do it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(x))[torch.tensor([0, 1, 1, 2])])


class Rig:
    """A job whose gradient of one tensor can be disturbed in chosen runs: (step, run within the step)."""

    def __init__(self, disturbed: tuple[tuple[int, int], ...] = ()) -> None:
        torch.manual_seed(1)
        self.model = Indexing()
        self.told: list[GuardFinding] = []
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        config = GuardConfig(every=2, anomalies=False)
        self.guard = ReplayGuard(self.model, optimizer, config=config, tell=self.told.append)
        self.number = self.run = 0
        self.model.second.weight.register_hook(
            lambda gradient: gradient + 1e-3 if (self.number, self.run) in disturbed else gradient
        )
        for self.number in range(1, 13):
            self.run = 0
            optimizer.zero_grad()
            self.guard.step(self.fn, torch.randn(3, 8))
            optimizer.step()

    def fn(self, batch: torch.Tensor) -> torch.Tensor:
        self.run += 1
        loss = self.model(batch).square().mean()
        loss.backward()
        return loss.detach()


def test_what_is_computed_after_a_documented_operation_is_not_checked_and_the_rest_is() -> None:
    torch.set_num_threads(2)
    report = Rig().guard.report()
    assert set(report["calibration"]["names"]) == {"loss.0", "second.bias", "second.weight"}
    assert {one["name"] for one in report["calibration"]["unstable"]} == {"first.bias", "first.weight"}
    for one in report["calibration"]["unstable"]:
        assert "index_put" in one["operations"][0]
        assert "use_deterministic_algorithms" in one["set"]
    assert report["verified_steps"] == 5
    assert "computed after" in Rig().guard.report_text()


def test_in_deterministic_mode_everything_is_checked() -> None:
    torch.set_num_threads(2)
    torch.use_deterministic_algorithms(mode=True)
    report = Rig().guard.report()
    assert report["calibration"]["unstable"] == ()
    assert (len(report["calibration"]["names"]), report["calibration"]["unsound"]) == (5, "")


def test_a_replay_that_differs_is_information_once_and_what_was_claimed_is_withdrawn() -> None:
    torch.set_num_threads(1)
    rig = Rig(disturbed=((6, 2), (10, 2)))
    report = rig.guard.report()
    assert [(one.fault_class, one.check, one.step) for one in rig.told] == [("software-nondeterminism", "unknown", 6)]
    # What is computed later is taken out, too; the loss was before.
    assert report["calibration"]["names"] == ("loss.0",)
    assert report["calibration"]["share"] == pytest.approx(1 / 5)
    assert any("no longer checked" in note and "first.weight" in note for note in report["notes"])


def test_an_original_that_differs_is_a_chip_only_if_ten_replays_agree() -> None:
    torch.set_num_threads(1)
    (finding,) = Rig(disturbed=((6, 1),)).told
    assert (finding.fault_class, finding.check) == ("chip-transient", "bad")
    (racing,) = Rig(disturbed=((6, 1), (6, 9))).told  # one replay of those that settle it
    assert (racing.fault_class, racing.check) == ("software-nondeterminism", "unknown")


def test_a_transient_at_the_same_place_again_is_withdrawn() -> None:
    torch.set_num_threads(1)
    told = Rig(disturbed=((6, 1), (8, 1), (10, 1))).told
    assert [(one.fault_class, one.step) for one in told] == [("chip-transient", 6), ("software-nondeterminism", 8)]


def test_nothing_is_verified_when_nothing_is_left_to_compare() -> None:
    torch.set_num_threads(1)
    rig = Rig()
    calibration = rig.guard.ledger.calibration
    assert calibration is not None
    rig.guard._claim(withdraw(calibration, calibration.names)[0])
    verified = rig.guard.ledger.verified
    for rig.number in (13, 14):
        rig.guard.step(rig.fn, torch.randn(3, 8))
    assert rig.guard.ledger.verified == verified
    assert any("nothing is left" in why for why in rig.guard.ledger.unchecked)


def test_withdrawing_takes_what_comes_after_and_nothing_before() -> None:
    known = Calibration(replays=10, ranks=1, names=("a", "b", "c"), places=(3, 9, 5))
    left, gone = withdraw(known, ["c"])
    assert (left.names, left.places, gone) == (("a",), (3,), ("b", "c"))
    assert left.share == pytest.approx(1 / 3)
    left, gone = withdraw(Calibration(replays=10, ranks=1, names=("a", "b")), ["b"])
    assert (left.names, gone) == (("a",), ("b",))


def test_a_verdict_of_another_kind_teaches_nothing() -> None:
    verdict = Verdict(
        check=Check.BAD, fault_class=FaultClass.MEMORY, rank=0, why="w", row="memory changed", asks=(), redo=False
    )  # fmt: skip
    assert Learner().learn(verdict, ["a"]) == (verdict, ())


class Pair(Alone):
    """Two ranks, of which the other one says what the test wants."""

    world = 2

    def __init__(self, *others: int) -> None:
        self.others, self.dropped = list(others), False

    def gather(self, values: Any) -> list[list[int]]:
        return [list(values), [self.others.pop(0)] * len(values)]

    def transfer_group(self) -> Any:
        return None

    def drop_transfer_group(self) -> None:
        self.dropped = True


def test_a_transfer_that_one_rank_cannot_begin_is_waited_for_by_none(monkeypatch: pytest.MonkeyPatch) -> None:
    began: list[int] = []

    class Fake:
        def __init__(self, *_: Any) -> None: ...
        def launch(self) -> None:
            began.append(1)

        def finish(self, _hasher: Hasher) -> list[int]:
            raise AssertionError("nobody may wait")

    monkeypatch.setattr("burnin.guard.joint.Transfers", Fake)
    hasher = Hasher(monotonic=lambda: 0.0, deadline_s=1.0)
    ranks = Pair(0, 0, 1)  # the other rank has a group and messages, and fails to launch
    with pytest.raises(UncheckedError, match="exact transfers failed on rank 1"):
        wrong_pairs(ranks, hasher, torch.device("cpu"), 1)
    assert began == [1]
    assert ranks.dropped
