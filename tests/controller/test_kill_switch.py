"""The kill switch stops what automation has decided and not done yet, and nothing that a person asks for."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from fleetd.controller.controller import Controller
from fleetd.model.finding import Verdict
from fleetd.model.ids import HostName, OrderId, SpoolId
from fleetd.model.order import Quarantine, RecallBurnin, Release, RunBurnin
from fleetd.ports import Claim
from fleetd.stores.memory import MemoryStore
from tests.controller.test_controller import (
    AGENT,
    H01,
    OPERATOR,
    SPOOL,
    Scheduler,
    ended,
    hello,
    play,
    qualify,
    running,
    settled,
)


def taken_out(scheduler: Scheduler) -> list[HostName]:
    return [order.host for order in scheduler.done if isinstance(order, Quarantine)]


async def held_while_the_scheduler_is_away(controller: Controller) -> RunBurnin:
    """One host is condemned, and automation is stopped before the scheduler hears of it."""
    order = await qualify(controller)
    await controller.intake.finding(H01, SPOOL, 1, ended(order, bad=3))
    await controller.desk.stop_automation(OPERATOR, "roll-out")
    await settled(lambda: controller.dispatcher.hosts_held_back == 1)
    return order


def test_the_kill_switch_holds_a_quarantine_back_that_waits_for_the_scheduler() -> None:
    async def scene() -> None:
        store, scheduler = MemoryStore(), Scheduler(failures=1_000_000)
        async with running(store, scheduler) as controller:
            await held_while_the_scheduler_is_away(controller)
            scheduler.failures = 0
            # Every worker is free for others: more hosts than workers are held by a person, and that goes out.
            for n in range(2, 8):
                peer = replace(AGENT, name=f"h0{n}")
                await controller.intake.hello(peer, hello(HostName(peer.name)), SpoolId(peer.name))
                await controller.desk.quarantine(OPERATOR, HostName(peer.name), "smells burnt")
            await settled(lambda: len(taken_out(scheduler)) == 6)
            assert sorted(taken_out(scheduler)) == [f"h0{n}" for n in range(2, 8)]
        async with running(store, scheduler) as controller:  # a restart lets nothing slip
            await settled(lambda: controller.dispatcher.hosts_held_back == 1)
            assert H01 not in taken_out(scheduler)
            await controller.desk.resume_automation(OPERATOR, "done")
            await settled(lambda: taken_out(scheduler)[6:] == [H01])
            assert controller.dispatcher.hosts_held_back == 0

    play(scene)


class CountedClaims(MemoryStore):
    """A ledger that counts who claims an order."""

    claims = 0

    def claim(self, order: OrderId) -> Claim | None:
        self.claims += 1
        return super().claim(order)


def test_the_kill_switch_holds_back_what_is_being_claimed_at_this_moment() -> None:
    """A claim asks the database: what a person stops meanwhile must not go out."""

    async def scene() -> None:
        store, scheduler = CountedClaims(), Scheduler()
        answers = asyncio.Event()

        async def slow_claims(function: Callable[[], Any]) -> Any:
            before = store.claims
            result = function()
            if store.claims > before:
                await answers.wait()
            return result

        async with running(store, scheduler, run_blocking=slow_claims) as controller:
            order = await qualify(controller)
            await controller.intake.finding(H01, SPOOL, 1, ended(order, bad=3))
            await settled(lambda: store.claims == 1)
            await controller.desk.stop_automation(OPERATOR, "roll-out")
            answers.set()
            await settled(lambda: controller.dispatcher.hosts_held_back == 1)
            assert taken_out(scheduler) == []
            await controller.desk.resume_automation(OPERATOR, "done")
            await settled(lambda: taken_out(scheduler) == [H01])

    play(scene)


@pytest.mark.parametrize("ask", ["quarantine", "release", "repair"])
def test_what_a_person_asks_for_goes_out_while_automation_is_stopped(ask: str) -> None:
    async def scene() -> None:
        scheduler = Scheduler(failures=1_000_000)
        async with running(MemoryStore(), scheduler) as controller:
            await held_while_the_scheduler_is_away(controller)
            scheduler.failures = 0
            if ask == "quarantine":
                await controller.desk.quarantine(OPERATOR, H01, "I want it out")
            elif ask == "release":
                await controller.desk.release(OPERATOR, H01, "it is fine", override=True)
            else:
                await controller.desk.repair(OPERATOR, H01, "new cable")
            await settled(lambda: controller.dispatcher.hosts_held_back == 0)
            await settled(lambda: len(scheduler.done) == 1)
            assert [type(order) for order in scheduler.done] == [Release if ask == "release" else Quarantine]
            assert controller.dispatcher.void_total == (ask == "release")

    play(scene)


def test_the_kill_switch_holds_a_burnin_back_until_its_agent_may_have_it() -> None:
    async def scene() -> None:
        async with running(MemoryStore(), Scheduler()) as controller:
            await controller.intake.hello(AGENT, hello(), SPOOL)
            await controller.desk.stop_automation(OPERATOR, "roll-out")
            waiting = asyncio.ensure_future(anext(controller.intake.orders(H01)))
            await settled(lambda: controller.dispatcher.hosts_held_back == 1)
            assert not waiting.done()
            await controller.desk.resume_automation(OPERATOR, "done")
            assert (await waiting).level == "smoke"

    play(scene)


def test_a_burnin_of_a_person_goes_out_while_automation_is_stopped() -> None:
    async def scene() -> None:
        async with running(MemoryStore(), Scheduler()) as controller:
            await controller.desk.stop_automation(OPERATOR, "roll-out")
            await controller.intake.hello(AGENT, hello(), SPOOL)
            await controller.desk.burnin(OPERATOR, H01, "let me see", level=None)
            assert (await anext(controller.intake.orders(H01))).level == "smoke"

    play(scene)


def test_the_kill_switch_recalls_a_burnin_that_runs_and_it_uses_up_no_attempt() -> None:
    async def scene() -> None:
        async with running(MemoryStore(), Scheduler()) as controller:
            order = await qualify(controller)
            told = controller.intake.orders(H01)
            await controller.intake.order_confirmed(H01, order.id, "")
            waiting = asyncio.ensure_future(anext(told))
            await controller.desk.stop_automation(OPERATOR, "roll-out")
            recall = await waiting
            assert isinstance(recall, RecallBurnin)
            assert (recall.order_id, "roll-out" in recall.why) == (order.id, True)
            # It was on its way when the agent reconnected: told again, once a session.
            again = controller.intake.orders(H01)
            assert await anext(again) == recall
            stopped = replace(ended(order), verdict=Verdict.NOT_JUDGED, why="recalled")
            await controller.intake.finding(H01, SPOOL, 1, stopped)
            host = controller.judge.hosts[H01]
            assert (host.pending, host.attempts) == (None, 0)
            assert host.due is not None
            following = asyncio.ensure_future(anext(again))
            await controller.desk.resume_automation(OPERATOR, "done")
            assert isinstance(await following, RunBurnin)

    play(scene)


def test_a_burnin_that_a_person_asked_for_is_not_recalled() -> None:
    async def scene() -> None:
        async with running(MemoryStore(), Scheduler()) as controller:
            first = await qualify(controller)
            await controller.intake.finding(H01, SPOOL, 1, ended(first))
            host = await controller.desk.burnin(OPERATOR, H01, "I want to know", level="smoke")
            assert host.pending is not None
            orders = controller.intake.orders(H01)
            asked = await anext(orders)
            await controller.intake.order_confirmed(H01, asked.id, "")
            await controller.desk.stop_automation(OPERATOR, "roll-out")
            waiting = asyncio.ensure_future(anext(orders))
            await settled(lambda: controller.judge.record.stopped is not None)
            await asyncio.sleep(0.01)
            assert not waiting.done()
            waiting.cancel()

    play(scene)
