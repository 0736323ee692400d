"""Facts and alerts over real gRPC: every page, each once, and nothing that a terminal would obey."""

from typing import Any

import pytest

from fleetd.model.alert import Alert
from fleetd.model.fact import BEGINNING, Fact, FactQuery, Kind
from fleetd.model.finding import Severity
from fleetd.model.host import Lifecycle
from fleetd.model.ids import GpuId, HostName
from fleetd.ports import Refused, UplinkError
from fleetd.uplink.fact_codec import (
    FACTS_PAGE,
    alert_from_pb,
    alert_to_pb,
    fact_from_pb,
    fact_to_pb,
    query_from_pb,
    query_to_pb,
)


def fact(position: int, event: str = "FindingReceived", **more: Any) -> Fact:
    basic: dict[str, Any] = {"at_s": 1.5, "host": HostName("h01"), "who": None, "reason": "", "why": "w"}
    basic |= {"refused": False, "was": "healthy", "now": "suspect", "state": Lifecycle.SUSPECT}
    return Fact(position=position, event=event, **{**basic, **more})


FULL = fact(
    7,
    who="ann",
    reason="r",
    refused=True,
    orders=("h01/1/quarantine",),
    kind=Kind(vendor="nvidia", sku="H200", pool="train"),
    gpus=8,
    held_by_us=True,
    found_at_s=1.25,
    override=True,
    job_ok=False,
    job_seconds=3600.5,
)
FLEET = fact(8, "BudgetRearmed", host=None, state=None)
ALERT = Alert(
    id="f/1",
    name="A",
    host=HostName("h01"),
    gpu=GpuId("GPU-1"),
    severity=Severity.WARNING,
    said="fan",
    at_s=3.0,
)


@pytest.mark.parametrize("one", [FULL, FLEET, fact(1)], ids=["full", "fleet", "bare"])
def test_a_fact_comes_back_as_it_was(one: Fact) -> None:
    assert fact_from_pb(fact_to_pb(one)) == one


def test_questions_and_alerts_come_back_and_a_page_is_bounded() -> None:
    query = FactQuery(after=3, limit=7, people=True, host=HostName("h"), who="ann", event="E", since_s=1.0, until_s=2.0)
    assert query_from_pb(query_to_pb(query)) == query
    assert query_from_pb(query_to_pb(newest := FactQuery(limit=7, before=9, newest=True))) == newest
    assert query_from_pb(query_to_pb(FactQuery(limit=10**6, notable=True))).limit == FACTS_PAGE
    assert alert_from_pb(alert_to_pb(ALERT)) == ALERT


def test_every_page_is_fetched_and_each_fact_once(play: Any) -> None:
    async def scenario(bench: Any) -> None:
        beginning = [fact(5, BEGINNING, host=HostName(f"b{n:04d}")) for n in range(1500)]
        facts = [fact(position) for position in range(6, 6 + 2 * FACTS_PAGE)]
        bench.desk_door.all_facts = [*beginning, *facts]
        async with bench.server() as server, bench.desk(server.port, stem="viewers/eve") as desk:
            assert list(await desk.facts(FactQuery(limit=10**6, notable=True))) == [*beginning, *facts]
            assert list(await desk.facts(FactQuery(limit=1100))) == [*beginning, *facts[:1100]]
            assert list(await desk.facts(FactQuery(after=6, limit=2))) == facts[1:3]
            assert list(await desk.facts(FactQuery(limit=1100, newest=True))) == facts[::-1][:1100]
            assert list(await desk.facts(FactQuery(limit=2, newest=True, before=8))) == facts[1::-1]
            bench.desk_door.old = True
            with pytest.raises(UplinkError, match="in the order of the journal only: upgrade it"):
                await desk.facts(FactQuery(limit=2, newest=True))
            bench.desk_door.all_facts = []
            assert await desk.facts(FactQuery(limit=10)) == ()
        assert all(query.limit <= FACTS_PAGE for query in bench.desk_door.queries)

    play(scenario)


def test_swaps_repairs_and_alerts_are_for_operators(play: Any) -> None:
    async def scenario(bench: Any) -> None:
        async with bench.server() as server:
            async with bench.desk(server.port) as desk:
                await desk.repaired(HostName("h01"), "done")
                await desk.swap(HostName("h01"), "RMA", old=GpuId("G1"), new=GpuId("G2"))
                taken = await desk.alerts([ALERT])
            assert (taken.taken, taken.refused) == (1, ("X: no host [31m",))
            assert [verb for _, verb, _ in bench.desk_door.done] == ["repaired h01", "swap G1 G2 h01", "alert f/1"]
            assert bench.desk_door.done[2][2] == repr(ALERT)
            async with bench.desk(server.port, stem="viewers/eve") as viewer:
                for ask in (
                    viewer.repaired(HostName("h01"), "done"),
                    viewer.swap(HostName("h01"), "RMA", old=GpuId("G1"), new=GpuId("G2")),
                    viewer.alerts([ALERT]),
                ):
                    with pytest.raises(Refused, match="only an operator"):
                        await ask
            async with bench.desk(server.port) as desk:
                with pytest.raises(UplinkError, match="old GPU is missing"):
                    await desk.swap(HostName("h01"), "r", old=GpuId(""), new=GpuId("G2"))

    play(scenario)
