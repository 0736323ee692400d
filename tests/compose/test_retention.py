"""A controller prunes its own ledger when it is told to, and goes on when that fails."""

import asyncio
from pathlib import Path

import pytest

from fleetd.compose.controller import LEDGER, retain
from fleetd.model.event import JobEnded
from fleetd.model.ids import HostName
from fleetd.stores import keep
from fleetd.stores.retention import RetentionConfig
from fleetd.stores.sql import SqlStore
from tests.agent.fakes_agent import FakeClock
from tests.stores.ledgers import DAY, Ledgerer

H3 = HostName("h3")


def ledger_of_ten_days(folder: Path, now_s: float) -> None:
    made = Ledgerer()
    made.join(now_s - 11 * DAY, ["h3"])
    for day in range(10, 0, -1):
        made.at(now_s - day * DAY, JobEnded(host=H3, job=f"j{day}", ok=True, ran_seconds=60.0))
    store = SqlStore(folder / LEDGER)
    store.commit(made.entries)
    store.close()


def jobs_left(folder: Path) -> list[str]:
    store = SqlStore(folder / LEDGER, read_only=True)
    entries = [entry for _, entry in store.journal(after=0, limit=1000)]
    store.close()
    return [entry.event.job for entry in entries if isinstance(entry.event, JobEnded)]


def run_for(clock: FakeClock, folder: Path, config: RetentionConfig) -> None:
    async def case() -> None:
        loop = asyncio.create_task(retain(config, folder / LEDGER, clock))
        await clock.reached.wait()
        loop.cancel()
        await asyncio.wait({loop})

    asyncio.run(case())


def test_what_is_older_goes_once_a_day(tmp_path: Path) -> None:
    clock = FakeClock(until_s=1000.0 + DAY + 1.0)
    ledger_of_ten_days(tmp_path, clock.wall_s())
    run_for(clock, tmp_path, RetentionConfig(keep_days=4.5))
    assert jobs_left(tmp_path) == ["j3", "j2", "j1"]


def test_a_stop_waits_for_the_page_at_hand_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger_of_ten_days(tmp_path, 1000.0 + DAY)
    monkeypatch.setattr(keep, "PAGE", 2)
    pages = iter([True, False])
    ended = keep.prune(tmp_path / LEDGER, before_s=1000.0 + 30 * DAY, go_on=lambda: next(pages))
    assert ended.entries + ended.kept == 4
    assert len(jobs_left(tmp_path)) > 1
    keep.prune(tmp_path / LEDGER, before_s=1000.0 + 30 * DAY)
    assert jobs_left(tmp_path) == ["j1"], "the newest always stays"


def test_everything_stays_when_nothing_else_is_asked_for(tmp_path: Path) -> None:
    clock = FakeClock(until_s=1000.0 + 3 * DAY)
    ledger_of_ten_days(tmp_path, clock.wall_s())
    run_for(clock, tmp_path, RetentionConfig())
    assert len(jobs_left(tmp_path)) == 10


def test_a_ledger_that_cannot_be_pruned_does_not_end_the_controller(tmp_path: Path) -> None:
    (tmp_path / LEDGER).write_bytes(b"no ledger at all" * 1000)
    run_for(FakeClock(until_s=1000.0 + 3 * DAY), tmp_path, RetentionConfig(keep_days=30.0))


@pytest.mark.parametrize(
    "wrong",
    [
        {"keep_days": 0.5},
        {"keep_days": float("nan")},
        {"keep_days": -1.0},
        {"every_hours": 0.0},
        {"every_hours": 1e-9},
    ],
)
def test_what_cannot_work_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        RetentionConfig(**wrong)
