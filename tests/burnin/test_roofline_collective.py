"""The model of collectives: volumes that arithmetic fixes, what two H200s did, and what makes no sense."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from burnin.parts import shelf
from burnin.parts.part import Part, PeerFit, Verified
from burnin.roofline.collective import OPERATIONS, expect_collective
from burnin.spec import SpecError

H200, MI300X = shelf.load("h200"), shelf.load("mi300x")
FULL = replace(
    H200,
    peer_fitted=PeerFit(
        verified=Verified(date="2026-11-30", driver="1", torch="2", points=9),
        gpus=8,
        share=0.8,
        step_seconds=2e-6,
        launch_seconds=5e-6,
    ),
)
operations = st.sampled_from(sorted(OPERATIONS))
sizes = st.integers(1, 1 << 34)
GIB = 1 << 30


@pytest.mark.parametrize(
    ("operation", "gpus", "sent"),
    [  # bytes that each GPU has to send at least, as multiples of the size
        ("all_reduce", 8, 2 * 7 / 8),
        ("all_reduce", 2, 1.0),
        ("all_gather", 8, 7 / 8),
        ("reduce_scatter", 4, 3 / 4),
        ("all_to_all", 8, 7 / 8),
        ("broadcast", 8, 1.0),
    ],
)
def test_without_latency_the_links_carry_what_arithmetic_demands(operation: str, gpus: int, sent: float) -> None:
    part = replace(H200, peer_fitted=None)
    told = expect_collective(part, operation, size_bytes=GIB, gpus=gpus)
    assert told.seconds == pytest.approx(sent * GIB / 450e9)
    assert told.bus_bytes_per_second == pytest.approx(450e9)
    assert told.bound == "links"
    assert told.unknown


def test_a_mesh_of_four_has_three_links_in_use() -> None:
    told = expect_collective(MI300X, "all_gather", size_bytes=GIB, gpus=4)
    assert told.links_bytes_per_second == pytest.approx(3 * 64e9)
    assert expect_collective(MI300X, "all_gather", size_bytes=GIB, gpus=8).links_bytes_per_second == pytest.approx(
        448e9
    )


@pytest.mark.parametrize(
    ("operation", "size", "measured", "within"),
    [("all_reduce", GIB, 326e9, 0.01), ("all_reduce", 1 << 20, 22e9, 0.03), ("all_to_all", GIB, 655e9, 0.03)],
)
def test_the_shipped_constants_meet_what_two_h200s_did(
    operation: str, size: int, measured: float, within: float
) -> None:
    told = expect_collective(H200, operation, size_bytes=size, gpus=2)
    assert told.bytes_per_second == pytest.approx(measured, rel=within)
    assert told.unknown == ("latency of a step",)
    assert "anything beyond 2 GPUs" in expect_collective(H200, operation, size_bytes=size, gpus=8).unknown


@settings(deadline=None)
@given(operation=operations, size=sizes, more=sizes, gpus=st.integers(2, 7), part=st.sampled_from((FULL, H200)))
def test_more_bytes_or_more_gpus_of_a_switch_are_never_faster(
    operation: str, size: int, more: int, gpus: int, part: Part
) -> None:
    base = expect_collective(part, operation, size_bytes=size, gpus=gpus).seconds
    assert expect_collective(part, operation, size_bytes=size + more, gpus=gpus).seconds >= base
    assert expect_collective(part, operation, size_bytes=size, gpus=gpus + 1).seconds >= base * (1 - 1e-12)


@settings(deadline=None)
@given(operation=operations, size=sizes, gpus=st.integers(2, 8))
def test_the_fastest_algorithm_is_taken_and_no_link_is_overdriven(operation: str, size: int, gpus: int) -> None:
    told = expect_collective(FULL, operation, size_bytes=size, gpus=gpus)
    assert told.seconds == min(told.seconds_by.values()) == told.seconds_by[told.algorithm]
    assert told.bus_bytes_per_second <= told.links_bytes_per_second
    assert told.unknown == ()


def test_small_sizes_are_bound_by_latency_in_few_steps_and_large_ones_by_links() -> None:
    small = expect_collective(FULL, "all_reduce", size_bytes=1024, gpus=8)
    large = expect_collective(FULL, "all_reduce", size_bytes=GIB, gpus=8)
    assert (small.algorithm, small.bound) == ("direct, one shot", "latency")
    assert large.bound == "links"
    assert large.seconds_by["direct, one shot"] > large.seconds


@pytest.mark.parametrize(
    ("operation", "size", "gpus", "told"),
    [
        ("gossip", 1, 2, "there are all_reduce, reduce_scatter"),
        ("all_reduce", 0, 2, "1 to"),
        ("all_reduce", 1 << 50, 2, "1 to"),
        ("all_reduce", 1, 1, "2 to 8"),
        ("all_reduce", 1, 9, "2 to 8"),
    ],
)
def test_what_makes_no_sense_is_refused(operation: str, size: int, gpus: int, told: str) -> None:
    with pytest.raises(SpecError, match=told):
        expect_collective(H200, operation, size_bytes=size, gpus=gpus)
