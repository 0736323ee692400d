"""Hosts that lie, or two that go by one name: what is granted still never adds up to more than a budget."""

import math
from itertools import count

import pytest

from fleetd.core.power.books import UNCONFIRMED, HostPower
from fleetd.core.power.tree import Area, BudgetTree
from fleetd.model.power_lease import Ask

TTL_S, GRACE_S = 10.0, 1.0
SAFE, MOST, BUDGET = 3000.0, 9000.0, 20_000.0
HOSTS = tuple(HostPower(name=f"h{n}", area="rack", safe_watts=SAFE, max_watts=MOST) for n in range(4))


def tree() -> BudgetTree:
    return BudgetTree([Area(name="rack", budget_watts=BUDGET)], HOSTS, now_s=0.0, ttl_s=TTL_S, grace_s=GRACE_S)


def ask(host: int, seq: int, *, holds: float = SAFE, wants: float = MOST, epoch: int = 1, applied: int = 0) -> Ask:
    return Ask(
        host=f"h{host}",
        epoch=epoch,
        seq=seq,
        demand_watts=wants,
        applied_seq=applied,
        holds_watts=holds,
        safe_watts=SAFE,
    )


@pytest.mark.parametrize("holds", [MOST, 1e300, math.inf, math.nan, -math.inf, -1.0])
def test_whatever_hosts_say_to_hold_after_a_start_fits_in_the_budget(holds: float) -> None:
    books, granted = tree(), {}
    for seq in (1, 2):
        for host in range(4):
            answer = books.ask(float(seq), ask(host, seq, holds=holds))
            assert answer is not None
            granted[host] = answer.watts
            assert books.use(float(seq)).areas[0].reserved_watts <= BUDGET
    assert sum(granted.values()) <= BUDGET
    assert min(granted.values()) >= SAFE


def test_honest_renewals_after_a_start_are_not_cut() -> None:
    books = tree()
    for host, holds in enumerate((8000.0, 6000.0, SAFE, SAFE)):  # the whole budget, as an earlier controller shared it
        answer = books.ask(1.0, ask(host, 1, holds=holds))
        assert answer is not None
        assert answer.watts == holds


def test_what_one_of_two_agents_with_one_name_was_given_is_reserved_until_it_lapses() -> None:
    books = tree()
    now_s = books.settled_s
    given = books.ask(now_s, ask(0, 1))
    assert given is not None
    assert given.watts == MOST
    # Another machine that was set up with its name; it knows nothing of that answer, and wants little.
    books.ask(now_s + 1.0, ask(0, 1, epoch=2, wants=SAFE))
    books.ask(now_s + 2.0, ask(0, 2, epoch=2, wants=SAFE, applied=1))
    other = books.ask(now_s + 3.0, ask(1, 1))
    assert other is not None
    assert given.watts + other.watts <= BUDGET - 2 * SAFE
    assert books.ask(now_s + 3.5, ask(0, 2)) is None, "the first one's next question"
    after_s = now_s + 1.1 * (TTL_S + GRACE_S)
    later = books.ask(after_s, ask(1, 2, applied=1))
    assert later is not None
    assert later.watts == MOST


def test_a_host_that_asks_without_end_makes_nothing_grow() -> None:
    books, seqs = tree(), count(1)
    for _ in range(500):
        seq = next(seqs)
        # Each answer is lower than the last, so that none can be left out, and none is confirmed.
        books.ask(books.settled_s + seq / 1000, ask(0, seq, wants=MOST - seq))
    book = books._hosts["h0"]
    assert len(books._lapses) == 1
    assert len(book.given) <= 32
    assert all(given.seq < UNCONFIRMED for given in book.given)
    assert books.use(books.settled_s + 1.0).areas[0].reserved_watts > 4 * SAFE
    assert books.use(books.settled_s + 30.0).areas[0].reserved_watts == 4 * SAFE, "all of it lapses by itself"


@pytest.mark.parametrize("milliwatts", [2_048_000, 4_096_000, 8_192_000])
def test_no_rounding_reserves_more_than_a_budget(milliwatts: int) -> None:
    host = HostPower(name="h0", area="rack", safe_watts=1000.0, max_watts=9000.0)
    for more in range(200):  # some of these are a little more than themselves after 1/1000 and back
        budget = (milliwatts + more) / 1000
        books = BudgetTree([Area(name="rack", budget_watts=budget)], [host], now_s=0.0, ttl_s=TTL_S, grace_s=GRACE_S)
        answer = books.ask(books.settled_s, ask(0, 1, holds=1000.0))
        assert answer is not None
        assert budget - 0.0011 <= answer.watts <= budget
        assert books.use(books.settled_s).areas[0].reserved_watts <= budget
