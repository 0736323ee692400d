"""The controller's metrics say where something waits for a human, and of retired hosts only that they are retired."""

import pytest
from prometheus_client.core import Metric

from fleetd.config import load_policy
from fleetd.config.shipped import policy_path
from fleetd.controller.area_metrics import AREAS_MAX, area_metrics
from fleetd.controller.metrics import ControllerCollector
from fleetd.core.fleet import Fleet
from fleetd.model.finding import FaultClass
from fleetd.model.fleet import Area, AreaKey, FleetRecord, Incident, IncidentKind, Tripped
from fleetd.model.host import Charge, Gpu, Hold, Host, Lifecycle, Place
from fleetd.model.ids import BootId, GpuId, HostName
from fleetd.model.journal import StoreImage
from fleetd.stores.memory import MemoryStore
from tests.controller.test_controller import H01, H02, OPERATOR, Scheduler, hello, play, running

HOLD = Hold(
    owner="fleetd",
    reason="x",
    evidence=(),
    gpu=None,
    fault_class=FaultClass.MEMORY,
    boot_id=None,
    at_s=1.0,
    proof_level="smoke",
)


def host(number: int, *, charged: bool = False, sku: str = "s", **place: str) -> Host:
    return Host(
        name=HostName(f"h{number:03d}"),
        state=Lifecycle.SUSPECT if charged else Lifecycle.HEALTHY,
        why="",
        since_s=1.0,
        boot_id=BootId("b"),
        inventory=(Gpu(gpu=GpuId(f"g{number}"), index=0, vendor="sim", sku=sku, pci_address=None),),
        holds=(),
        charges=(Charge(hold=HOLD, withheld="a budget", key=None),) if charged else (),
        strikes=(),
        pending=None,
        proof=None,
        orders_issued=0,
        attempts=0,
        place=Place(**place),
    )


def shown(hosts: list[Host], record: FleetRecord) -> dict[str, dict[tuple[str, ...], float]]:
    image = StoreImage(hosts=tuple(hosts), spools=(), open_orders=(), fleet=record, quarantines=(), recent=())
    fleet = Fleet.of(image, load_policy(policy_path("default")))
    return values(list(area_metrics(hosts, fleet, record)))


def values(families: list[Metric]) -> dict[str, dict[tuple[str, ...], float]]:
    return {f.name: {tuple(s.labels.values()): s.value for s in f.samples} for f in families}


def incident(kind: IncidentKind, *numbers: int, total: int | None = None) -> Incident:
    names = tuple(HostName(f"h{number:03d}") for number in numbers)
    count = len(names) if total is None else total
    return Incident(
        id=f"{kind}/x/1", kind=kind, key="x", opened_at_s=1.0, hosts=names, hosts_total=count, why="", told_at_s=1.0
    )


def test_nothing_is_said_as_nought_and_not_by_silence() -> None:
    assert shown([host(1, rack="r1")], FleetRecord()) == {
        "fleetd_budget_tripped": {("fleet", ""): 0},
        "fleetd_hosts_charged": {("fleet", ""): 0},
        "fleetd_incidents_open": {(kind.value, "fleet", ""): 0 for kind in IncidentKind},
    }


def test_a_budget_that_has_tripped_names_its_area() -> None:
    keys = (AreaKey(area=Area.RACK, name="r1"), AreaKey(area=Area.FLEET, name=""))
    record = FleetRecord(tripped=tuple(Tripped(key=key, at_s=1.0, why="", told_at_s=1.0) for key in keys))
    assert shown([], record)["fleetd_budget_tripped"] == {("fleet", ""): 1, ("rack", "r1"): 1}


def test_hosts_whose_quarantine_is_withheld_are_counted_where_they_stand_and_once() -> None:
    hosts = [
        host(1, charged=True, rack="r1", pool="p"),
        host(2, charged=True, rack="r1", pool="q"),
        host(3, charged=True, pool="p"),
        host(4, charged=True),
        host(5, rack="r1", pool="p"),
    ]
    charged = shown(hosts, FleetRecord())["fleetd_hosts_charged"]
    assert charged == {("fleet", ""): 1, ("rack", "r1"): 2, ("pool", "p"): 1}


def test_more_areas_than_are_shown_count_for_the_fleet() -> None:
    hosts = [host(n, charged=True, rack=f"r{n:03d}") for n in range(AREAS_MAX + 7)]
    hosts += [host(900 + n, charged=True, rack="large") for n in range(2)]
    charged = shown(hosts, FleetRecord())["fleetd_hosts_charged"]
    assert len(charged) == AREAS_MAX + 1
    assert charged["rack", "large"] == 2
    assert sum(charged.values()) == len(hosts)
    assert charged["fleet", ""] == 8


@pytest.mark.parametrize(
    ("numbers", "total", "where"),
    [
        ((1, 2), 2, ("rack", "r0")),
        ((1, 2, 11), 3, ("power_domain", "east")),
        ((1, 2, 31), 3, ("fleet", "")),
        ((1, 2), 99, ("fleet", "")),  # those that are not listed cannot all be in this rack
        ((), 5, ("fleet", "")),  # hosts that nobody knows any more
    ],
)
def test_an_incident_is_in_the_smallest_area_that_its_hosts_share(
    numbers: tuple[int, ...], total: int, where: tuple[str, str]
) -> None:
    hosts = [
        host(n, sku="same", rack=f"r{n // 10}", power_domain="east" if n < 20 else "west", job=f"j{n // 5}")
        for n in range(40)
    ]
    record = FleetRecord(incidents=(incident(IncidentKind.STORM, *numbers, total=total),))
    storms = {key[1:]: n for key, n in shown(hosts, record)["fleetd_incidents_open"].items() if key[0] == "storm"}
    assert storms == {("fleet", ""): 0, where: 1}


def test_a_retired_host_is_counted_and_has_no_series_of_its_own() -> None:
    async def scene() -> None:
        async with running(MemoryStore(), Scheduler()) as controller:
            for name in (H01, H02):
                peer = type(OPERATOR)(name=name, role="agent")
                await controller.intake.hello(peer, hello(name), "s")  # type: ignore[arg-type]  # a name
            await controller.desk.retire(OPERATOR, H01, "gone")
            found = list(ControllerCollector(controller).collect())
            hosts = {s.labels["host"] for family in found for s in family.samples if "host" in s.labels}
            assert hosts == {H02}
            assert values(found)["fleetd_hosts"]["retired",] == 1

    play(scene)
