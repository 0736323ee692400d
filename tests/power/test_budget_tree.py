"""A12: the budget tree over a network that loses, delays, doubles and reorders, with both ends restarting.

What is judged is what the hosts really have in force, never the controller's own books.
"""

import functools
import heapq
import itertools
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetd.core.power.books import HostPower
from fleetd.core.power.lease import ASKED_KEPT, Lease
from fleetd.core.power.tree import Area, BudgetTree, TreeError
from fleetd.model.power_lease import Ask, Grant

TTL_S, GRACE_S = 10.0, 1.0
AREAS = (
    Area(name="domain", budget_watts=40_000.0),
    Area(name="rack-0", budget_watts=22_000.0, parent="domain"),
    Area(name="rack-1", budget_watts=22_000.0, parent="domain"),
)
HOSTS = tuple(
    HostPower(name=f"h{n}", area=f"rack-{n % 2}", safe_watts=3000.0 + 100 * n, max_watts=9000.0) for n in range(8)
)


def tree(now_s: float = 0.0) -> BudgetTree:
    return BudgetTree(AREAS, HOSTS, now_s=now_s, ttl_s=TTL_S, grace_s=GRACE_S)


@dataclass
class SimHost:
    """A host with a clock of its own, whose writes take their time and sometimes fail."""

    power: HostPower
    rate: float
    epoch: int = 0
    lease: Lease = field(init=False)
    in_force_watts: float = 0.0

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self.epoch += 1
        self.lease = Lease(host=self.power.name, epoch=self.epoch, safe_watts=self.power.safe_watts)
        self.in_force_watts = self.power.safe_watts


class Net:
    """Events in virtual time; a message may be lost, doubled, or overtaken by later ones."""

    def __init__(self, seed: int) -> None:
        self.random, self.now_s = random.Random(seed), 0.0  # noqa: S311 - a network's weather, no secret
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = itertools.count()
        self.tree, self.up = tree(), True
        self.hosts = [SimHost(power, self.random.uniform(0.9995, 1.0005)) for power in HOSTS]
        self.worst, self.done, self.raised = 0.0, 0, 0
        for host in self.hosts:
            self.at(self.random.uniform(0, 3), functools.partial(self.turn, host))
        self.at(self.random.expovariate(1 / 60), self.crash)

    def at(self, after_s: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now_s + after_s, next(self._count), what))

    def send(self, what: Callable[[], None]) -> None:
        for _ in range(self.random.choices((0, 1, 2), (0.1, 0.8, 0.1))[0]):
            late = self.random.random() < 0.1
            self.at(self.random.uniform(0, 2.5 * TTL_S) if late else self.random.expovariate(20), what)

    def turn(self, host: SimHost) -> None:
        """A host asks, or restarts; it looks after its lapse in time for the grace."""
        if self.random.random() < 0.01:
            host.restart()
        wants = self.random.choice((0.0, 4000.0, 9000.0, math.nan, 1e9))
        ask = host.lease.ask(self.now_s * host.rate, wants)
        self.send(lambda: self.answer(host, ask))
        self.at(self.random.uniform(0.5, 4.0), lambda: self.turn(host))

    def answer(self, host: SimHost, ask: Ask) -> None:
        if self.up and (grant := self.tree.ask(self.now_s, ask)) is not None:
            self.send(lambda: self.take(host, grant))

    def take(self, host: SimHost, grant: Grant) -> None:
        lease, before = host.lease, host.in_force_watts
        if not lease.receive(self.now_s * host.rate, grant):
            return
        self.raised += grant.watts > before
        # A raise may be in force at once; a decrease takes effect late, but before the lease's own grace.
        host.in_force_watts = max(before, grant.watts)
        self.at(self.random.uniform(0, 0.9 * GRACE_S), lambda: self.written(host, lease, grant))
        left = (lease.until_s - self.now_s * host.rate) / host.rate
        self.at(left + self.random.uniform(0, 0.9 * GRACE_S), lambda: self.lapse(host, lease))

    def written(self, host: SimHost, lease: Lease, grant: Grant) -> None:
        if host.lease is lease and lease.received_seq == grant.seq:
            host.in_force_watts = lease.cap_watts(self.now_s * host.rate)
            if self.random.random() < 0.9:  # else the read-back failed: it is not told
                lease.applied(grant.seq)

    def lapse(self, host: SimHost, lease: Lease) -> None:
        if host.lease is lease and self.now_s * host.rate >= lease.until_s:
            host.in_force_watts = host.power.safe_watts

    def crash(self) -> None:
        self.up = False
        self.at(self.random.expovariate(0.5), self.start)

    def start(self) -> None:
        self.tree, self.up = tree(self.now_s), True
        self.at(self.random.expovariate(1 / 60), self.crash)

    def run(self, events: int) -> None:
        while self.done < events:
            self.now_s, _, what = heapq.heappop(self._events)
            what()
            self.done += 1
            for area in AREAS:
                inside = [h for h in self.hosts if area.parent is None or h.power.area == area.name]
                self.worst = max(self.worst, sum(h.in_force_watts for h in inside) / area.budget_watts)


@pytest.mark.parametrize("seed", range(4))
def test_a12_live_leases_never_add_up_to_more_than_a_budget(seed: int) -> None:
    net = Net(seed)
    net.run(25_000)
    assert net.worst <= 1.0 + 1e-9
    # It is no feat to keep a budget that nobody is given.
    assert net.raised > 200
    assert net.worst > 0.9


def ask(lease: Lease, now_s: float, watts: float, books: BudgetTree) -> float:
    """One question, answered and applied at once; what is in force then."""
    grant = books.ask(now_s, lease.ask(now_s, watts))
    assert grant is not None
    assert lease.receive(now_s, grant)
    lease.applied(grant.seq)
    return lease.cap_watts(now_s)


def leases() -> dict[str, Lease]:
    return {h.name: Lease(host=h.name, epoch=1, safe_watts=h.safe_watts) for h in HOSTS}


def test_nobody_is_raised_before_earlier_leases_have_lapsed() -> None:
    books, hosts = tree(), leases()
    assert ask(hosts["h0"], 1.0, 9000.0, books) == 3000.0
    assert ask(hosts["h0"], books.settled_s, 9000.0, books) > 3000.0


def test_a_raise_waits_until_the_decrease_that_pays_for_it_is_confirmed() -> None:
    books, hosts = tree(), leases()
    start = books.settled_s
    assert ask(hosts["h0"], start, 9000.0, books) == 9000.0
    assert ask(hosts["h2"], start + 1, 9000.0, books) < 9000.0
    # h0 wants less: the answer is under way, and nobody knows whether it arrived.
    under_way = books.ask(start + 2, hosts["h0"].ask(start + 2, 3000.0))
    assert under_way is not None
    assert under_way.watts == 3000.0
    held = ask(hosts["h2"], start + 3, 9000.0, books)
    assert held < 9000.0
    assert hosts["h0"].receive(start + 3, under_way)
    hosts["h0"].applied(under_way.seq)
    assert ask(hosts["h0"], start + 4, 3000.0, books) == 3000.0
    assert ask(hosts["h2"], start + 5, 9000.0, books) == 9000.0


def test_an_unconfirmed_lease_is_free_when_it_has_lapsed() -> None:
    books, hosts = tree(), leases()
    start = books.settled_s
    assert ask(hosts["h0"], start, 9000.0, books) == 9000.0
    assert ask(hosts["h2"], start + 1, 9000.0, books) < 9000.0
    # h0 is never heard again: it still wants its share, but what was reserved for it is its safe cap.
    books.ask(start + 1.5, hosts["h0"].ask(start + 1.5, 0.0))
    assert ask(hosts["h2"], start + 2 + 2 * TTL_S, 9000.0, books) == 9000.0


def test_wishes_are_cut_at_one_level_and_the_domain_binds_both_racks() -> None:
    books, hosts = tree(), leases()
    start = books.settled_s
    for n in range(40):  # each its question every second: all wishes known, all decreases confirmed
        held = {name: ask(lease, start + n, 9000.0, books) for name, lease in hosts.items()}
    assert sum(held.values()) == pytest.approx(40_000.0, abs=1.0)
    assert max(held.values()) - min(held.values()) < 1.0
    assert all(use.reserved_watts <= use.budget_watts for use in books.use(start + 40).areas)


def test_an_older_answer_and_one_to_an_earlier_start_are_ignored() -> None:
    lease = Lease(host="h0", epoch=2, safe_watts=3000.0)
    first, second = lease.ask(0.0, 9000.0), lease.ask(1.0, 9000.0)

    def grant(seq: int, *, epoch: int = 2, watts: float = 5000.0) -> Grant:
        return Grant(host="h0", epoch=epoch, seq=seq, watts=watts, ttl_s=TTL_S, max_watts=9000.0)

    assert not lease.receive(1.0, grant(first.seq, epoch=1))
    assert not lease.receive(1.0, grant(99))
    assert not lease.receive(1.0, grant(second.seq, watts=math.nan))
    assert lease.receive(1.0, grant(second.seq))
    assert not lease.receive(1.0, grant(first.seq, watts=9000.0))
    assert lease.cap_watts(10.9) == 5000.0
    assert lease.cap_watts(11.0) == 3000.0
    assert not lease.receive(11.5, grant(lease.ask(1.2, 0.0).seq)), "its time is over"


def test_a_late_question_is_not_answered_and_an_unknown_host_neither() -> None:
    books, lease = tree(), leases()["h0"]
    early, late = lease.ask(0.0, 1.0), lease.ask(1.0, 1.0)
    assert books.ask(1.0, late) is not None
    assert books.ask(1.1, early) is None
    assert books.ask(1.2, Lease(host="nobody", epoch=1, safe_watts=1.0).ask(0.0, 1.0)) is None


def test_questions_without_answers_are_forgotten_not_gathered() -> None:
    lease = Lease(host="h0", epoch=1, safe_watts=3000.0)
    first = lease.ask(0.0, 1.0)
    for n in range(ASKED_KEPT):
        lease.ask(float(n), 1.0)
    late = Grant(host="h0", epoch=1, seq=first.seq, watts=9000.0, ttl_s=TTL_S, max_watts=9000.0)
    assert not lease.receive(1.0, late)


@pytest.mark.parametrize(
    ("areas", "hosts", "says"),
    [
        ((Area(name="a", budget_watts=5000.0),), HOSTS[:1], "area rack-0, which does not exist"),
        ((Area(name="rack-0", budget_watts=2999.0),), HOSTS[:1], "already be overdrawn"),
        ((Area(name="rack-0", budget_watts=math.nan),), HOSTS[:1], "positive number of watts"),
        ((Area(name="rack-0", budget_watts=5e4, parent="rack-0"),), HOSTS[:1], "below itself"),
        ((Area(name="rack-0", budget_watts=5e4),), (HOSTS[0], HOSTS[0]), "twice"),
        (
            (Area(name="rack-0", budget_watts=5e4),),
            (HostPower(name="h", area="rack-0", safe_watts=10.0, max_watts=5.0),),
            "below its safe cap",
        ),
    ],
)
def test_a_tree_that_cannot_be_kept_safe_is_refused(
    areas: tuple[Area, ...], hosts: tuple[HostPower, ...], says: str
) -> None:
    with pytest.raises(TreeError, match=says):
        BudgetTree(areas, hosts, now_s=0.0, ttl_s=TTL_S, grace_s=GRACE_S)


@given(st.lists(st.floats(0.0, 20_000.0), min_size=8, max_size=8), st.floats(30_000.0, 80_000.0))
def test_whatever_is_wished_the_level_gives_all_or_uses_the_budget_up(wishes: list[float], budget: float) -> None:
    areas = (Area(name="domain", budget_watts=budget), *(a for a in AREAS if a.parent))
    books = BudgetTree(areas, HOSTS, now_s=0.0, ttl_s=TTL_S, grace_s=GRACE_S)
    hosts, start = leases(), books.settled_s
    for n in range(3):
        held = {
            name: ask(lease, start + n, wish, books) for (name, lease), wish in zip(hosts.items(), wishes, strict=True)
        }
    for area in areas:
        total = sum(held[h.name] for h in HOSTS if area.parent is None or h.area == area.name)
        assert total <= area.budget_watts + 1e-6
    assert all(held[h.name] >= h.safe_watts for h in HOSTS)


def test_a_host_that_holds_no_cap_is_reserved_at_its_maximum_until_it_says_that_it_does() -> None:
    books, hosts = tree(), leases()
    start = books.settled_s
    for _ in range(2):
        books.uncap(start, "h0", "its agent is old")
    assert books.use(start).hosts[0].reserved_watts == 9000.0
    assert books.use(start).areas[1].reserved_watts == 9000.0 + sum(h.safe_watts for h in HOSTS[2::2])
    assert ask(hosts["h0"], start, 4000.0, books) == 4000.0
    assert books.use(start).hosts[0].uncapped == ""
    grant = books.ask(start + 1, hosts["h0"].ask(start + 1, 4000.0, uncapped="a GPU takes no limit"))
    assert grant is not None
    assert (grant.watts, grant.whole) == (9000.0, True), "reserved anyway"
    assert ask(hosts["h2"], start + 2, 9000.0, books) < 9000.0
    assert books.use(start + 2).hosts[0].uncapped == "a GPU takes no limit"


def test_a_host_that_nothing_controls_counts_with_its_maximum_from_the_start() -> None:
    bare = HostPower(name="h0", area="rack-0", safe_watts=3000.0, max_watts=9000.0, controlled=False)
    with pytest.raises(TreeError, match="add up to 9000 W, above its budget of 8000 W"):
        BudgetTree((Area(name="rack-0", budget_watts=8000.0),), (bare,), now_s=0.0, ttl_s=TTL_S, grace_s=GRACE_S)
    books = BudgetTree((Area(name="rack-0", budget_watts=9000.0),), (bare,), now_s=0.0, ttl_s=TTL_S, grace_s=GRACE_S)
    lease = leases()["h0"]
    assert ask(lease, books.settled_s, 5000.0, books) == 9000.0
    assert books.use(books.settled_s).hosts[0].uncapped == "the tree says that nothing controls its power"


def test_longer_leases_of_an_earlier_controller_are_waited_for() -> None:
    books = BudgetTree(AREAS, HOSTS, now_s=0.0, ttl_s=TTL_S, grace_s=GRACE_S, earlier_s=100.0)
    assert books.settled_s == 101.0
    grant = books.ask(50.0, leases()["h0"].ask(50.0, 9000.0))
    assert grant is not None
    assert (grant.watts, grant.why) == (3000.0, "nobody is raised for 51 s: just started")
