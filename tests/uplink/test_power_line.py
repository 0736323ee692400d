"""Questions for power and their answers: as messages, and over real gRPC between ends of different versions."""

import asyncio
import math
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from fleetd.model.ids import HostName
from fleetd.model.power_lease import Answer, AreaUse, Ask, Grant, HostUse, NoGrant, PowerUse
from fleetd.pb.v1 import agent_pb2, desk_pb2
from fleetd.uplink import power_codec
from fleetd.uplink.wire import MAX_TEXT_CHARS, CodecError

H01 = HostName("h01")
watts = st.floats(-1e9, 1e9)
seqs = st.integers(0, 2**63 - 1)
names = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=20)
texts = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=30)
asks = st.builds(
    Ask,
    host=st.just(H01),
    epoch=seqs,
    seq=seqs,
    demand_watts=watts,
    applied_seq=st.just(0),
    holds_watts=watts,
    safe_watts=watts,
    uncapped=texts,
)
grants = st.builds(Grant, host=st.just(H01), epoch=seqs, seq=seqs, watts=watts, ttl_s=watts, max_watts=watts, why=texts)
areas = st.builds(
    AreaUse,
    name=names,
    parent=st.none() | names,
    budget_watts=watts,
    reserved_watts=watts,
    demand_watts=watts,
    stranded_watts=watts,
)
hosts = st.builds(
    HostUse,
    name=names.map(HostName),
    area=names,
    safe_watts=watts,
    max_watts=watts,
    reserved_watts=watts,
    demand_watts=watts,
    lease_watts=st.none() | watts,
    left_s=st.none() | watts,
    uncapped=texts,
)
uses = st.builds(
    PowerUse,
    areas=st.lists(areas, max_size=3).map(tuple),
    hosts=st.lists(hosts, max_size=3).map(tuple),
    settles_s=watts,
)
ASK = Ask(host=H01, epoch=7, seq=3, demand_watts=9.0, applied_seq=2, holds_watts=5.0, safe_watts=4.0)
GRANT = Grant(host=H01, epoch=7, seq=3, watts=6.0, ttl_s=60.0, max_watts=9.0, why="its share")


@given(asks)
def test_questions_survive_the_trip(ask: Ask) -> None:
    assert power_codec.ask_from_pb(power_codec.ask_to_pb(ask).power_ask, H01) == ask


@given(grants)
def test_grants_survive_the_trip(grant: Grant) -> None:
    assert power_codec.grant_from_pb(power_codec.answer_to_pb(grant).power_grant, H01) == grant


@given(st.builds(NoGrant, why=texts, budgets=st.booleans()))
def test_the_answer_that_there_is_none_survives_the_trip(answer: NoGrant) -> None:
    assert power_codec.no_grant_from_pb(power_codec.answer_to_pb(answer).power_no_grant) == answer


@given(uses)
def test_how_the_budgets_stand_survives_the_trip(use: PowerUse) -> None:
    assert power_codec.power_from_pb(power_codec.power_to_pb(use)) == use


@pytest.mark.parametrize(
    ("pb", "line"),
    [
        (agent_pb2.PowerAsk(seq=1, demand_watts=math.nan), "power_ask demand_watts is nan"),
        (agent_pb2.PowerAsk(seq=1, holds_watts=math.inf), "power_ask holds_watts is inf"),
        (agent_pb2.PowerAsk(seq=1, applied_seq=2), "applied_seq is 2, and the question is only number 1"),
        (agent_pb2.PowerAsk(epoch=2**63), "epoch .* must fit into 63 unsigned bits"),
        (agent_pb2.PowerAsk(uncapped="x" * (MAX_TEXT_CHARS + 1)), "uncapped is 4001 characters long"),
    ],
)
def test_a_question_that_makes_no_sense_is_not_read(pb: agent_pb2.PowerAsk, line: str) -> None:
    with pytest.raises(CodecError, match=line):
        power_codec.ask_from_pb(pb, H01)


@given(st.binary(max_size=100))
def test_no_bytes_crash_the_decoders(body: bytes) -> None:
    with suppress(DecodeError, CodecError):
        power_codec.ask_from_pb(agent_pb2.PowerAsk.FromString(body), H01)
    with suppress(DecodeError, CodecError):
        power_codec.power_from_pb(desk_pb2.GetPowerResponse.FromString(body))


class Line:
    """Asks what it is told to, once each, and takes the answers down."""

    def __init__(self, *asks: Ask) -> None:
        self.asks, self.answers = list(asks), []  # type: ignore[var-annotated]
        self.answered_once = asyncio.Event()

    async def next_ask(self) -> Ask:
        if not self.asks:
            await asyncio.Event().wait()
        return self.asks.pop(0)

    def answered(self, answer: Answer) -> None:
        self.answers.append(answer)
        self.answered_once.set()


def test_questions_and_answers_over_the_line(play: Any, make: Any) -> None:
    async def scenario(bench: Any) -> None:
        bench.door.power_answers = [GRANT, None, NoGrant(why="x\x1b[31m", budgets=True)]
        asked = [ASK, replace(ASK, seq=4, uncapped="it observes"), replace(ASK, seq=5)]
        line = Line(*asked)
        async with bench.server() as server, bench.agent(bench.uplink(server.port), bench.spool(), power=line):
            await make.eventually(lambda: len(line.answers) == 2)
        assert bench.door.asks == [("h01", ask) for ask in asked]
        assert line.answers == [GRANT, NoGrant(why="x [31m", budgets=True)]

    play(scenario)


def test_an_agent_that_asks_a_controller_that_does_not_know_questions_is_served_all_the_same(
    play: Any, make: Any
) -> None:
    async def scenario(bench: Any) -> None:
        # What an older controller makes of the message: a kind that it does not know.
        unknown = agent_pb2.AgentMessage.FromString(b"\xfa\x3f\x00")
        assert unknown.WhichOneof("kind") is None
        spool, line = bench.spool(), Line(ASK)
        bench.door.power_answers = [None]  # it stays silent
        async with bench.server() as server, bench.agent(bench.uplink(server.port), spool, power=line):
            await bench.door.until(lambda: bool(bench.door.asks))
            spool.append(make.fault("a"))
            await bench.door.until(lambda: bench.door.ids() == ["a"])
        assert line.answers == []

    play(scenario)


def test_an_agent_without_leases_passes_answers_over(play: Any, make: Any) -> None:
    async def scenario(bench: Any) -> None:
        spool = bench.spool()
        async with bench.server() as server, bench.agent(bench.uplink(server.port), spool):
            spool.append(make.fault("a"))
            await bench.door.until(lambda: bench.door.ids() == ["a"])
            assert bench.door.asks == []

    play(scenario)


def test_viewers_may_look_at_the_budgets(play: Any, make: Any) -> None:
    async def scenario(bench: Any) -> None:
        async with bench.server() as server, bench.desk(server.port, stem="viewers/eve") as desk:
            assert await desk.power() == await bench.desk_door.power()

    del make
    play(scenario)
