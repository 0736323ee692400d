"""What is shown of budgets is what a decision would go by."""

from dataclasses import replace

from fleetd.config import load_policy
from fleetd.config.shipped import policy_path
from fleetd.core.budget import objection, uses
from fleetd.core.fleet import FLEET, Fleet
from fleetd.model.finding import FaultClass
from fleetd.model.fleet import Area, AreaKey, FleetRecord, Tripped
from fleetd.model.host import Gpu, Hold, Host, Lifecycle, Place
from fleetd.model.ids import BootId, GpuId, HostName
from fleetd.model.journal import StoreImage

NOW_S = 1_800_000_000.0
POLICY = load_policy(policy_path("default"))
HOLD = Hold(
    owner="fleetd",
    reason="x",
    evidence=(),
    gpu=None,
    fault_class=FaultClass.MEMORY,
    boot_id=None,
    at_s=NOW_S,
    proof_level="smoke",
)


def _host(number: int, rack: str, *, held: bool = False) -> Host:
    return Host(
        name=HostName(f"h{number:03d}"),
        state=Lifecycle.QUARANTINED if held else Lifecycle.HEALTHY,
        why="",
        since_s=NOW_S,
        boot_id=BootId("b"),
        inventory=(Gpu(gpu=GpuId(f"g{number}"), index=0, vendor="sim", sku="s", pci_address=None),),
        holds=(HOLD,) if held else (),
        strikes=(),
        pending=None,
        proof=None,
        orders_issued=0,
        attempts=0,
        place=Place(rack=rack),
    )


def _fleet(hosts: list[Host], record: FleetRecord = FleetRecord(), **image: object) -> Fleet:  # noqa: B008 - frozen
    empty = StoreImage(hosts=tuple(hosts), spools=(), open_orders=(), fleet=record, quarantines=(), recent=())
    return Fleet.of(replace(empty, **image), POLICY)


def test_the_fleet_comes_first_and_areas_of_which_nothing_is_spent_are_left_out() -> None:
    hosts = [_host(n, f"r{n % 4}", held=n == 1) for n in range(40)]
    found = uses(_fleet(hosts, quarantines=((NOW_S - 60, HostName("h001")),)), policy=POLICY, now_s=NOW_S, limit=9)
    assert [use.key for use in found] == [FLEET, AreaKey(area=Area.RACK, name="r1")]
    assert [(use.hosts, use.held, use.recent) for use in found] == [(40, 1, 1), (10, 1, 1)]
    assert found[1].budget.allowed(found[1].hosts) == 2


def test_the_fullest_areas_are_shown_and_the_tripped_before_them() -> None:
    hosts = [_host(n, f"r{n % 10}", held=n % 10 < 3 or n in {13, 23, 33}) for n in range(40)]
    tripped = Tripped(key=AreaKey(area=Area.RACK, name="r9"), at_s=NOW_S, why="", told_at_s=NOW_S)
    fleet = _fleet(hosts, FleetRecord(tripped=(tripped,)))
    found = uses(fleet, policy=POLICY, now_s=NOW_S, limit=3)
    assert [use.key.name for use in found] == ["", "r9", "r2", "r1"]
    assert [use.tripped for use in found] == [False, True, False, False]


def test_old_orders_and_areas_without_a_budget_do_not_count() -> None:
    hosts = [_host(n, "r0") for n in range(40)]
    fleet = _fleet(hosts, quarantines=((NOW_S - 3601, HostName("h001")), (NOW_S - 1, HostName("gone"))))
    (whole,) = uses(fleet, policy=POLICY, now_s=NOW_S, limit=9)
    assert (whole.key, whole.recent) == (FLEET, 0)
    (nobody,) = uses(_fleet([]), policy=POLICY, now_s=NOW_S, limit=9)
    assert (nobody.hosts, nobody.held) == (0, 0)


def test_a_budget_that_is_shown_full_is_one_that_objects() -> None:
    for held in range(5):
        hosts = [_host(n, f"r{n % 2}", held=n % 2 == 0 and n < 2 * held) for n in range(24)]
        fleet = _fleet(hosts)
        by_key = {use.key: use for use in uses(fleet, policy=POLICY, now_s=NOW_S, limit=9)}
        found = objection(fleet, _host(99, "r0"), policy=POLICY, now_s=NOW_S)
        full = {
            key
            for key, use in by_key.items()
            if use.fullness[1] >= 1 and key in {FLEET, AreaKey(area=Area.RACK, name="r0")}
        }
        assert (found is not None) == bool(full), held
        assert found is None or found.key in full
