"""Telemetry at the controller's door: the vitals now, the rest when it is read, and nothing malformed gets anywhere."""

import math
from typing import Any

import grpc
import pytest
from structlog.testing import capture_logs

from fleetd.core.outliers import WATCHED
from fleetd.model.ids import HostName
from fleetd.model.telemetry import VITALS, GpuSample, Telemetry
from fleetd.pb.v1 import agent_pb2, common_pb2
from fleetd.uplink.codec import telemetry_to_pb
from fleetd.uplink.telemetry_codec import telemetry_taken
from fleetd.uplink.wire import MAX_GPUS, CodecError
from tests.uplink.test_limits import end_of, hello_bytes, raw_stream

H1 = HostName("h01")


def _sent(*samples: GpuSample) -> agent_pb2.Telemetry:
    return agent_pb2.Telemetry.FromString(telemetry_to_pb(samples).SerializeToString())


def test_vitals_are_those_of_the_samples_and_the_rest_is_what_was_sent(make: Any) -> None:
    samples = (make.sample("GPU-0"), GpuSample(gpu=make.sample("GPU-1").gpu, at_s=7.0, utilization_ratio=0.0))
    for whole in (False, True):
        taken = telemetry_taken(_sent(*samples), H1, whole=whole)
        for vitals, sample in zip(taken.vitals, samples, strict=True):
            for name in ("gpu", "at_s", *VITALS):
                assert getattr(vitals, name) == getattr(sample, name), name
        assert taken.whole() == samples
    assert taken.vitals[1].power_watts is None  # not read, and not 0


def test_what_is_compared_among_siblings_are_vitals() -> None:
    assert {*WATCHED, "utilization_ratio"} <= set(VITALS)
    assert all(name in GpuSample.__dataclass_fields__ for name in VITALS)


@pytest.mark.parametrize("metric", VITALS)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_vital_that_is_no_number_is_refused_at_the_door(make: Any, metric: str, value: float) -> None:
    pb = _sent(make.sample("GPU-0"))
    setattr(pb.samples[0], metric, value)
    with pytest.raises(CodecError, match=f"sample {metric} is {value}, a finite number is needed"):
        telemetry_taken(pb, H1, whole=False)


@pytest.mark.parametrize(
    ("field", "value"), [("gpu", ""), ("gpu", "a\x1b[31m"), ("gpu", "x" * 257), ("at_s", math.nan)]
)
def test_whose_and_when_are_looked_at_at_the_door(make: Any, field: str, value: Any) -> None:
    pb = _sent(make.sample("GPU-0"))
    setattr(pb.samples[0], field, value)
    with pytest.raises(CodecError, match=f"sample {field}"):
        telemetry_taken(pb, H1, whole=False)


def test_more_gpus_than_a_host_has_are_refused_at_the_door() -> None:
    pb = agent_pb2.Telemetry(samples=[common_pb2.GpuSample(gpu=f"g{n}", at_s=1.0) for n in range(MAX_GPUS + 1)])
    with pytest.raises(CodecError, match="telemetry samples has 257 entries"):
        telemetry_taken(pb, H1, whole=False)


def test_what_is_wrong_beyond_the_vitals_is_found_by_who_reads_it_and_said(make: Any) -> None:
    pb = _sent(make.sample("GPU-0"))
    pb.samples[0].throttle_seconds_total.add(label="power_cap\x1b", value=1.0)
    with pytest.raises(CodecError, match="sample throttle_seconds_total has characters"):
        telemetry_taken(pb, H1, whole=True)
    taken = telemetry_taken(pb, H1, whole=False)
    with capture_logs() as logs:
        assert taken.whole() == ()
    (told,) = logs
    assert (told["event"], told["host"]) == ("telemetry_malformed", "h01")
    assert told["why"].startswith("sample throttle_seconds_total has characters")


def test_telemetry_that_is_there_already_is_its_own_vitals(make: Any) -> None:
    samples = (make.sample("GPU-0"), make.sample("GPU-1"))
    taken = Telemetry.of(iter(samples))
    assert (taken.vitals, taken.whole()) == (samples, samples)


def test_who_gets_the_protocol_wrong_is_told_so_at_its_first_telemetry(play: Any, make: Any) -> None:
    async def scenario(bench: Any) -> None:
        good = _sent(make.sample("GPU-0"))
        bad = _sent(make.sample("GPU-1"))
        bad.samples[0].ecc_corrected_total = math.nan  # no vital
        async with bench.server() as server:
            async with raw_stream(bench, server.port) as call:
                await call.write(hello_bytes(make))
                await call.write(agent_pb2.AgentMessage(telemetry=bad).SerializeToString())
                code, why = await end_of(call)
                assert code is grpc.StatusCode.INVALID_ARGUMENT
                assert why == "sample ecc_corrected_total is nan, a finite number is needed"
            async with raw_stream(bench, server.port) as call:  # later ones end no stream: the vitals are taken
                await call.write(hello_bytes(make))
                await call.read()
                for telemetry in (good, bad, good):
                    await call.write(agent_pb2.AgentMessage(telemetry=telemetry).SerializeToString())
                await bench.door.until(lambda: len(bench.door.telemetries) == 3)
                assert [len(taken.vitals) for taken in bench.door.telemetries] == [1, 1, 1]
                assert [len(taken.whole()) for taken in bench.door.telemetries] == [1, 0, 1]
                assert server.agents == 1

    play(scenario)
