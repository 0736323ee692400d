"""Three controllers share a ledger in a real PostgreSQL; judge, lines and database die while findings come in."""

import asyncio
from functools import partial
from pathlib import Path

import pytest

from fleetd.system import RealClock
from tests.e2e.failover import CONTROLLERS, Failover, troubled
from tests.postgres import REASON, Cluster

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600), pytest.mark.skipif(bool(REASON), reason=REASON)]


def test_while_judges_die_nothing_is_lost_and_nothing_is_done_twice(tmp_path: Path) -> None:
    with Cluster(synced=True) as cluster:
        failover = Failover(tmp_path, cluster, agents=20)
        outcome = asyncio.run(troubled(failover, troubles=5, every_s=4.0, per_second=20.0))
    print(  # noqa: T201 - the figure is asked for
        f"{outcome.findings} findings, {outcome.kills} kills, {outcome.cuts} cuts: finding to order "
        f"p50 {outcome.latency_s(0.5):.2f} s, p99 {outcome.latency_s(0.99):.2f} s, max {outcome.latency_s(1):.2f} s"
    )
    assert outcome.wrong == (), failover.logs()
    assert (outcome.kills, outcome.cuts) == (3, 2)
    assert outcome.terms >= 6
    assert len(outcome.latencies_s) == outcome.findings  # how long it takes, `make bench-failover` holds to 5 s


def test_a_database_that_crashes_takes_nothing_with_it_and_ends_no_controller(tmp_path: Path) -> None:
    async def story(failover: Failover) -> None:
        async with failover.running():
            await failover.settled()
            finding = asyncio.create_task(failover.find_for(9.0, per_second=20.0))
            for _ in range(2):
                await RealClock().sleep_s(3.0)
                await failover.restart_the_database()
            await finding
            await failover.settled()
            outcome = await asyncio.to_thread(failover.outcome)
            assert outcome.wrong == (), failover.logs()
            assert all(failover.alive(number) for number in range(CONTROLLERS))

    with Cluster(synced=True) as cluster:
        asyncio.run(story(Failover(tmp_path, cluster, agents=5)))


def test_a_judge_that_hangs_is_replaced_and_does_nothing_when_it_goes_on(tmp_path: Path) -> None:
    """All its connections stay open, and when it goes on it still believes that it judges."""

    async def story(failover: Failover) -> None:
        async with failover.running():
            await failover.settled()
            finding = asyncio.create_task(failover.find_for(12.0, per_second=20.0))
            hung = await failover.stop_the_judge()
            await RealClock().sleep_s(1.0)
            failover.go_on(hung)
            await finding
            await failover.settled()
            outcome = await asyncio.to_thread(failover.outcome)
            assert outcome.wrong == (), failover.logs()
            assert failover.alive(hung)
            assert await asyncio.to_thread(failover.leads, hung) == "0.0"

    with Cluster() as cluster:
        asyncio.run(story(Failover(tmp_path, cluster, agents=5)))


def test_who_judges_is_shown_and_found_and_a_stop_in_order_hands_over(tmp_path: Path) -> None:
    async def story(failover: Failover) -> None:
        async with failover.running():
            await failover.settled()
            judge, term = await failover.elected()
            others = [number for number in range(CONTROLLERS) if number != judge]
            while "" in (led := [await asyncio.to_thread(failover.leads, number) for number in (judge, *others)]):
                await RealClock().sleep_s(0.1)  # one of them is still starting
            assert led == ["1.0", "0.0", "0.0"]
            listed = await asyncio.to_thread(failover.command, "host", "list")
            assert (listed.returncode, "h000" in listed.stdout) == (0, True), listed.stderr
            refused = await asyncio.to_thread(partial(failover.command, "host", "list", controllers=others[:1]))
            assert refused.returncode == 3
            assert "stands by, the judge is" in refused.stderr
            assert refused.stderr.count("\n") == 1
            held = await asyncio.to_thread(failover.command, "host", "quarantine", "h000", "--reason", "a look")
            assert held.returncode == 0, held.stderr
            assert await asyncio.to_thread(failover.end, judge) == 0
            await failover.elected(after=term)
            await failover.settled()
            shown = await asyncio.to_thread(failover.command, "host", "show", "h000")
            assert "quarantined" in shown.stdout, shown.stderr
            assert (await asyncio.to_thread(failover.outcome)).wrong == ()

    with Cluster() as cluster:
        asyncio.run(story(Failover(tmp_path, cluster, agents=2)))
