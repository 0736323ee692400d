"""The inbox: every interruption of a short delivery is enumerated; nothing is stored twice or silently lost."""

from itertools import combinations, product

import pytest

from fleetd.core.inbox import Arrival, Decision, receive


@pytest.mark.parametrize(
    ("stored", "seq", "expected"),
    [
        (0, 1, Arrival(decision=Decision.ACCEPT, acknowledge_seq=1, lost=0)),
        (4, 5, Arrival(decision=Decision.ACCEPT, acknowledge_seq=5, lost=0)),
        (4, 4, Arrival(decision=Decision.DUPLICATE, acknowledge_seq=4, lost=0)),
        (4, 1, Arrival(decision=Decision.DUPLICATE, acknowledge_seq=4, lost=0)),
        (4, 8, Arrival(decision=Decision.GAP, acknowledge_seq=8, lost=3)),
        (0, 2, Arrival(decision=Decision.GAP, acknowledge_seq=2, lost=1)),
    ],
)
def test_table(stored: int, seq: int, expected: Arrival) -> None:
    assert receive(stored_seq=stored, seq=seq) == expected


@pytest.mark.parametrize(("stored", "seq"), [(0, 0), (3, -1), (-1, 1)])
def test_numbers_that_no_spool_gives_out(stored: int, seq: int) -> None:
    with pytest.raises(ValueError, match="start at 1"):
        receive(stored_seq=stored, seq=seq)


def deliver(numbers: tuple[int, ...], cuts: tuple[int, ...]) -> tuple[list[int], int]:
    """Send a spool's numbers, cut at each position in `cuts`; position 3k+j of the k-th message.

    j = 0: the message is lost with its connection; 1: stored, and the receiver dies before it acknowledges; 2: the
    acknowledgement is lost. After a cut everything that is not acknowledged is sent again, in order.
    """
    spool, stored_seq, written, lost, tick = list(numbers), 0, [], 0, 0
    while spool:
        for seq in tuple(spool):
            arrives, acknowledges, hears = tick not in cuts, tick + 1 not in cuts, tick + 2 not in cuts
            tick += 3
            if not arrives:
                break
            arrival = receive(stored_seq=stored_seq, seq=seq)
            if arrival.decision is not Decision.DUPLICATE:
                written.append(seq)
                lost += arrival.lost
            stored_seq = arrival.acknowledge_seq
            if not (acknowledges and hears):
                break
            spool = [n for n in spool if n > arrival.acknowledge_seq]
    return written, lost


@pytest.mark.parametrize("numbers", [(1, 2, 3), (2, 3, 6), (1, 5)])
def test_every_pair_of_interruptions(numbers: tuple[int, ...]) -> None:
    ticks = range(3 * (len(numbers) + 3))
    for cuts in (c for n in range(3) for c in combinations(ticks, n)):
        written, lost = deliver(numbers, cuts)
        assert written == list(numbers), cuts
        assert lost == numbers[-1] - len(numbers), cuts


def test_two_connections_of_one_spool_that_overlap_store_each_once() -> None:
    """The messages of an older connection may still be in the works when the agent has begun anew."""
    for order in product((0, 1), repeat=6):
        streams = [iter((1, 2, 3)), iter((1, 2, 3))]
        stored_seq, written = 0, []
        for stream in order:
            seq = next(streams[stream], None)
            if seq is None:
                continue
            arrival = receive(stored_seq=stored_seq, seq=seq)
            if arrival.decision is not Decision.DUPLICATE:
                written.append(seq)
            assert arrival.lost == 0
            stored_seq = arrival.acknowledge_seq
        assert written == [1, 2, 3][: len(written)]
