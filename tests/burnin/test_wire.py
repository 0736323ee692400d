"""What children say is checked before it is believed: a child's memory may be the thing that is broken."""

import json
from dataclasses import asdict

import pytest

from burnin.processes.wire import (
    Count,
    Discover,
    Examine,
    Prove,
    Request,
    Vote,
    WireError,
    ballot,
    decode,
    elements,
    encode,
    felt,
    made,
    pack,
    part,
    plain,
    unpack,
)
from burnin.spec import Ballot, Elements, Inject, Proof

FAULT = Inject(gpu=1, fault="F03", rate=0.5, seed=2)
REQUESTS = [
    Discover(backend="sim", gpus=None, host="h"),
    Vote(test="t", workload="m:C", case="c", iteration=0, seed=2**62, launches=3, inject=FAULT),
    Prove(test="t", workload="m:C", case="c", seed=1),
    Examine(test="t", workload="m:C", case="c", seed=1, launches=9, right="0f", tiles=(3, 4), inject=FAULT),
    Count(),
]
BALLOT = Ballot(
    case="c",
    iteration=0,
    seed=1,
    fingerprints=(("a", 2), ("b", 1)),
    launches=3,
    bytes=4,
    flops=5,
    elapsed_s=0.5,
    trace=(("op", "x"),),
    tiles=(2**64 - 1, 0),
)


@pytest.mark.parametrize("request_", REQUESTS)
def test_requests_survive_the_wire(request_: Request) -> None:
    assert unpack(decode(encode(pack(request_)))) == request_


def test_ballots_survive_the_wire() -> None:
    assert ballot(decode(encode(plain(BALLOT)))) == BALLOT


NO_NUMBERS = [b'{"x":NaN}', b'{"x":-Infinity}', b'{"x":1e999}']


@pytest.mark.parametrize("line", [b"", b"{", b"[]", b"7", b"\xff\xfe", b"null", *NO_NUMBERS])
def test_what_is_no_message(line: bytes) -> None:
    with pytest.raises(WireError):
        decode(line)


@pytest.mark.parametrize(
    "message", [{}, {"do": "Dance", "with": {}}, {"do": "Count", "with": {"x": 1}}, {"do": "Vote"}]
)
def test_what_is_no_request(message: dict[str, object]) -> None:
    with pytest.raises(WireError):
        unpack(message)


@pytest.mark.parametrize(
    "change",
    [
        *({"launches": 4}, {"launches": 0, "fingerprints": []}, {"fingerprints": 1}, {"tiles": ["x"]}, {"extra": 1}),
        *({"launches": "many"}, {"bytes": None}, {"elapsed_s": "nan"}, {"facts": [["x", "inf"]]}),
    ],
)
def test_what_is_no_ballot(change: dict[str, object]) -> None:
    fields = json.loads(json.dumps(asdict(BALLOT)))
    with pytest.raises(WireError):
        ballot(fields | change)


def test_launches_that_do_not_count_are_a_ballot_all_the_same() -> None:
    fields = json.loads(json.dumps(asdict(BALLOT)))
    cast = ballot(fields | {"launches": 0})
    assert (cast.launches, cast.made) == (0, 3)


@pytest.mark.parametrize("change", [{"power_watts": 7}, {"power_watts": {"min": 1, "mean": "nan", "max": 1}}])
def test_what_no_gpu_feels(change: dict[str, object]) -> None:
    with pytest.raises(WireError, match="not what a GPU felt"):
        felt(change)


def test_what_is_no_answer() -> None:
    with pytest.raises(WireError):
        part({"proof": []}, "proof")
    with pytest.raises(WireError):
        made(Proof, {"case": "c"})


ELEMENTS = Elements(count=3, compared=9, bits=((0, 3), (31, 1)), period=None, first=(0, 2))


def test_the_elements_of_a_result_survive_the_wire() -> None:
    assert elements(decode(encode(asdict(ELEMENTS)))) == ELEMENTS


@pytest.mark.parametrize(
    "change", [{"bits": [1]}, {"first": [1]}, {"first": None}, {"colour": 1}, {"bits": [["x", 1]]}]
)
def test_what_is_not_the_elements_of_a_result_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(WireError, match="not the elements"):
        elements(asdict(ELEMENTS) | change)
