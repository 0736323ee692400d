"""Swaps, repairs and a restored ledger: what they change on a host, and what they may not."""

from fleetd.model.event import (
    GpuSwapped,
    LedgerRestored,
    OperatorQuarantined,
    OperatorRepaired,
    OperatorRepairs,
    OperatorRetires,
)
from fleetd.model.host import Lifecycle
from fleetd.model.ids import GpuId, HostName
from fleetd.model.journal import JournalEntry
from tests.stores.ledgers import Ledgerer, burnin, gpu_of

H1, H2 = HostName("h1"), HostName("h2")
NEW = GpuId("GPU-new")


def a_fleet() -> Ledgerer:
    """h1 is condemned for its GPU, h2 is healthy."""
    made = Ledgerer()
    made.join(0.0, ["h1", "h2"])
    made.at(100.0, burnin("h1", "bad", 99.0))
    return made


def swap(made: Ledgerer, host: HostName, old: GpuId, new: GpuId) -> JournalEntry:
    return made.at(200.0, GpuSwapped(host=host, who="ann", reason="RMA", old=old, new=new))[0]


def test_a_swap_is_written_down_and_proves_nothing() -> None:
    made = a_fleet()
    before = made.replay.hosts[H1]
    entry = swap(made, H1, gpu_of("h1").gpu, NEW)
    after = made.replay.hosts[H1]
    assert not entry.refused
    assert (after.state, after.holds, after.marks) == (before.state, before.holds, before.marks)
    assert (after.proof, entry.orders) == (None, ())
    assert f"swapped gpu {gpu_of('h1').gpu} for {NEW}" in entry.why


def test_a_swap_that_cannot_be_is_refused_and_says_why() -> None:
    made = a_fleet()
    one, other = gpu_of("h1").gpu, gpu_of("h2").gpu
    for host, old, new, why in (
        (H1, one, one, "cannot replace itself"),
        (H1, one, other, "is in h2, as its agent says"),
        (H1, GpuId("GPU-x"), NEW, "was ever seen in this host"),
        (H2, other, NEW, "take it out of service before"),
    ):
        entry = swap(made, host, old, new)
        assert entry.refused
        assert why in entry.why


def test_the_new_gpu_may_be_accused_elsewhere() -> None:
    """A part that was taken out of one host and put into the next: its past is said, not forgotten."""
    made = a_fleet()
    made.at(300.0, OperatorQuarantined(host=H2, who="ann", reason="RMA"))
    accused = gpu_of("h1").gpu
    # h1's agent does not list it any more.
    host = made.replay.hosts[H1]
    made.replay.fleet._claims.put(accused, None)
    assert host.holds[0].gpu == accused
    entry = swap(made, H2, gpu_of("h2").gpu, accused)
    assert not entry.refused
    assert "the new one is accused elsewhere" in entry.why


def test_a_repair_ends_with_the_burnin_that_proves_the_host() -> None:
    made = a_fleet()
    early = made.at(150.0, OperatorRepaired(host=H1, who="ann", reason="new GPU"))[0]
    assert (early.refused, "not under repair" in early.why) == (True, True)
    made.at(160.0, OperatorRepairs(host=H1, who="ann", reason="GPU 0"))
    done = made.at(170.0, OperatorRepaired(host=H1, who="ann", reason="new GPU"))[0]
    host = made.replay.hosts[H1]
    assert (host.state, host.held) == (Lifecycle.QUALIFYING, True)
    assert host.pending is not None
    assert host.pending.by_operator
    assert "repaired: new GPU" in done.why


def test_a_restored_ledger_leaves_numbers_out_also_for_a_retired_host() -> None:
    made = a_fleet()
    made.at(150.0, OperatorRetires(host=H2, who="ann", reason="sold"))
    for name in (H1, H2):
        before = made.replay.hosts[name]
        made.at(200.0, LedgerRestored(host=name, who="ann", reason="disk", orders_skipped=50))
        after = made.replay.hosts[name]
        assert after.orders_issued == before.orders_issued + 50
        assert (after.state, after.holds, after.pending) == (before.state, before.holds, before.pending)
