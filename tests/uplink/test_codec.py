"""Everything that travels survives the trip, and nothing that breaks the limits gets in."""

from contextlib import suppress
from dataclasses import fields, replace
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from fleetd.model.finding import Ballot, BurninEnded, Culprit, DeviceFault, FaultClass, Scope, Severity, Verdict
from fleetd.model.fleet import Area, AreaKey, FleetRecord, Incident, IncidentKind, Stopped, Tripped
from fleetd.model.host import (
    Charge,
    DueBurnin,
    Gpu,
    Hello,
    Hold,
    Host,
    Lifecycle,
    Mark,
    PendingBurnin,
    Place,
    Silent,
    Strike,
)
from fleetd.model.order import RunBurnin
from fleetd.model.telemetry import FAMILIES, LABELS_MAX, METRICS, GpuSample
from fleetd.pb.v1 import common_pb2
from fleetd.ports import Spooled
from fleetd.uplink import codec, desk_codec, fleet_codec, hello_codec
from fleetd.uplink.wire import MAX_GPUS, MAX_NAME_CHARS, MAX_TEXT_CHARS, CodecError, clean

printable = st.characters(exclude_categories=["C", "Z"], include_characters=" ")
names = st.text(printable, min_size=1, max_size=12)
labels = st.text(printable, max_size=12)
texts = st.text(printable, max_size=40)
seconds = st.floats(allow_nan=False, allow_infinity=False, min_value=0)
uint32 = st.integers(0, 2**32 - 1)
maybe_names = st.none() | names

gpus = st.builds(
    Gpu,
    gpu=names,
    index=uint32,
    vendor=names,
    sku=labels,
    pci_address=maybe_names,
    vbios=maybe_names,
    firmware=maybe_names,
    driver_version=maybe_names,
)
culprits = st.builds(Culprit, gpu=names, index=uint32, fault_class=st.sampled_from(FaultClass), why=texts)
burnins = st.builds(
    BurninEnded,
    id=names,
    host=names,
    boot_id=names,
    at_s=seconds,
    why=texts,
    order_id=maybe_names,
    level=names,
    verdict=st.sampled_from(Verdict),
    fault_class=st.sampled_from(FaultClass),
    seed=st.integers(0, 2**64 - 1),
    vote_key=labels,
    culprits=st.lists(culprits, max_size=3).map(tuple),
    ballots=st.lists(st.builds(Ballot, key=names, fingerprint=names), max_size=3).map(tuple),
)
faults = st.builds(
    DeviceFault,
    id=names,
    host=names,
    boot_id=names,
    at_s=seconds,
    why=texts,
    code=names,
    gpu=maybe_names,
    index=st.none() | uint32,
    scope=st.sampled_from(Scope),
    severity=st.sampled_from(Severity),
    fault_class=st.sampled_from(FaultClass),
)
places = st.builds(
    Place, pool=maybe_names, rack=maybe_names, nvlink_domain=maybe_names, power_domain=maybe_names, job=maybe_names
)
hellos = st.builds(
    Hello,
    host=names,
    boot_id=names,
    agent_version=names,
    capabilities=st.lists(names, max_size=3).map(tuple),
    inventory=st.lists(gpus, max_size=3).map(tuple),
    place=places,
    at_s=st.none() | seconds,
    driver_version=maybe_names,
)
orders = st.builds(
    RunBurnin, id=names, host=names, issued_at_s=seconds, why=texts, level=names, boot_id=names, not_after_s=seconds
)
readings = st.none() | st.floats(allow_nan=False, allow_infinity=False)
numbers = st.floats(allow_nan=False, allow_infinity=False)
labelled = st.dictionaries(names, numbers, max_size=3).map(lambda readings: tuple(sorted(readings.items())))
samples = st.builds(
    GpuSample,
    gpu=names,
    at_s=seconds,
    **{metric.name: readings for metric in METRICS},
    **{family.name: labelled for family in FAMILIES},
)
holds = st.builds(
    Hold,
    owner=names,
    reason=texts,
    evidence=st.lists(names, max_size=3).map(tuple),
    gpu=maybe_names,
    fault_class=st.sampled_from(FaultClass),
    boot_id=maybe_names,
    at_s=seconds,
    proof_level=maybe_names,
    after_reboot=st.booleans(),
    expires_at_s=st.none() | seconds,
)
charges = st.builds(Charge, hold=holds, withheld=texts, key=maybe_names)
marks = st.builds(
    Mark, gpu=maybe_names, slot=maybe_names, finding=names, fault_class=st.sampled_from(FaultClass), at_s=seconds
)
hosts = st.builds(
    Host,
    name=names,
    state=st.sampled_from(Lifecycle),
    why=texts,
    since_s=seconds,
    boot_id=maybe_names,
    inventory=st.lists(gpus, max_size=2).map(tuple),
    holds=st.lists(holds, max_size=2).map(tuple),
    strikes=st.lists(st.builds(Strike, gpu=names, finding=names, at_s=seconds), max_size=2).map(tuple),
    pending=st.none()
    | st.builds(
        PendingBurnin,
        order_id=names,
        level=names,
        issued_at_s=seconds,
        not_after_s=seconds,
        accepted=st.booleans(),
        disruptive=st.just(value=False),
        awaited_until_s=st.none(),
    ),
    proof=maybe_names,
    orders_issued=uint32,
    attempts=uint32,
    place=places,
    charges=st.lists(charges, max_size=2).map(tuple),
    marks=st.lists(marks, max_size=2).map(tuple),
    due=st.none()
    | st.builds(
        DueBurnin, level=names, why=texts, not_before_s=seconds, tries=st.just(1), disruptive=st.just(value=False)
    ),
    silent=st.none() | st.builds(Silent, since_s=seconds, before=st.sampled_from(Lifecycle)),
    probation_until_s=st.none() | seconds,
    # The judgement's own bookkeeping stays where it is.
    **dict.fromkeys(("sightings", "ballots", "boots", "told"), st.just(())),
)
records = st.builds(
    FleetRecord,
    tripped=st.lists(
        st.builds(
            Tripped,
            key=st.builds(AreaKey, area=st.sampled_from(Area), name=labels),
            at_s=seconds,
            why=texts,
            told_at_s=seconds,
        ),
        max_size=2,
    ).map(tuple),
    stopped=st.none() | st.builds(Stopped, who=texts, reason=texts, at_s=seconds),
    incidents=st.lists(
        st.builds(
            Incident,
            id=texts,
            kind=st.sampled_from(IncidentKind),
            key=texts,
            opened_at_s=seconds,
            hosts=st.lists(names, max_size=2).map(tuple),
            hosts_total=uint32,
            why=texts,
            told_at_s=seconds,
        ),
        max_size=2,
    ).map(tuple),
    incidents_opened=uint32,
)


@given(records)
def test_the_fleets_record_survives_the_trip(record: Any) -> None:
    assert fleet_codec.fleet_from_pb(fleet_codec.fleet_to_pb(record)) == record


def test_an_older_agent_says_neither_place_nor_time_nor_driver(make: Any) -> None:
    pb = hello_codec.hello_to_pb(make.hello(), "s")
    pb.ClearField("place")
    pb.ClearField("at_s")
    pb.ClearField("driver_version")
    hello, _ = hello_codec.hello_from_pb(pb)
    assert (hello.place, hello.at_s, hello.driver_version) == (Place(), None, None)


def test_what_a_newer_agent_says_beyond_that_is_passed_over(make: Any) -> None:
    plain = hello_codec.hello_to_pb(make.hello(), "s")
    newer = type(plain).FromString(plain.SerializeToString() + b"\xfa\x3f\x03abc")  # field 1023, a string
    assert hello_codec.hello_from_pb(newer) == hello_codec.hello_from_pb(plain)


@given(burnins | faults, st.integers(1, 2**63 - 1))
def test_findings_survive_the_trip(finding: Any, seq: int) -> None:
    spooled = Spooled(seq=seq, finding=finding)
    assert codec.spooled_from_pb(codec.spooled_to_pb(spooled)) == spooled


@given(hellos, names)
def test_hellos_survive_the_trip(hello: Any, spool: Any) -> None:
    assert hello_codec.hello_from_pb(hello_codec.hello_to_pb(hello, spool)) == (hello, spool)


@given(st.lists(samples, max_size=3).map(tuple))
def test_telemetry_survives_the_trip(batch: Any) -> None:
    assert codec.telemetry_from_pb(codec.telemetry_to_pb(batch)) == batch


@given(orders)
def test_orders_survive_the_trip(order: Any) -> None:
    assert codec.run_burnin_from_pb(codec.run_burnin_to_pb(order)) == order


@given(hosts)
def test_hosts_survive_the_trip(host: Any) -> None:
    assert desk_codec.host_from_pb(desk_codec.host_to_pb(host)) == host


@given(st.binary(max_size=200))
def test_no_bytes_crash_the_decoder(body: bytes) -> None:
    pb = common_pb2.Finding()
    with suppress(DecodeError, CodecError):
        pb.ParseFromString(body)
        codec.finding_from_pb(pb)


def test_the_wire_has_every_metric_of_the_catalogue_and_no_other() -> None:
    wire = {field.name: field.is_repeated for field in common_pb2.GpuSample.DESCRIPTOR.fields}
    assert wire == {f.name: f.name in {family.name for family in FAMILIES} for f in fields(GpuSample)}


def test_what_is_not_a_number_is_not_read(make: Any) -> None:
    sample = replace(make.sample("GPU-0"), power_watts=float("nan"), temperature_celsius=float("inf"))
    decoded = codec.sample_from_pb(codec.sample_to_pb(sample))
    assert (decoded.power_watts, decoded.temperature_celsius) == (None, None)
    with pytest.raises(CodecError, match="sample power_watts is nan"):
        codec.sample_from_pb(common_pb2.GpuSample(gpu="GPU-0", power_watts=float("nan")))


def test_a_family_that_is_too_long_or_has_a_label_twice_is_refused() -> None:
    entries = [common_pb2.Labelled(label=str(n), value=n) for n in range(LABELS_MAX + 1)]
    with pytest.raises(CodecError, match="sample fabric_link_up_ratio has 37 entries"):
        codec.sample_from_pb(common_pb2.GpuSample(gpu="GPU-0", fabric_link_up_ratio=entries))
    with pytest.raises(CodecError, match="sample ecc_block_corrected_total has a label twice"):
        codec.sample_from_pb(common_pb2.GpuSample(gpu="GPU-0", ecc_block_corrected_total=entries[:1] * 2))


def test_free_text_is_cut_and_cleaned_when_it_is_sent(make: Any) -> None:
    finding = make.fault("a", why="\x1b[31mred\n" + "x" * 10_000 + "\udc80")
    why = codec.finding_from_pb(codec.finding_to_pb(finding)).why
    assert len(why) == MAX_TEXT_CHARS
    assert why.startswith(" [31mred x")
    assert why.endswith("…")
    assert clean("\udc80 é") == "  é"


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"id": ""}, "finding id is missing"),
        ({"id": "x" * (MAX_NAME_CHARS + 1)}, "finding id is 257 characters long, at most 256 are allowed"),
        ({"host": "h\udc80"}, "finding host has characters that cannot be printed"),
        ({"at_s": float("inf")}, "finding at_s is inf, a finite number is needed"),
        ({"index": -1}, "finding index is -1, it must fit into 32 unsigned bits"),
    ],
)
def test_what_breaks_the_limits_is_not_sent(make: Any, change: dict[str, Any], line: str) -> None:
    with pytest.raises(CodecError, match=line):
        codec.finding_to_pb(replace(make.fault("a"), **change))


def test_lists_are_bounded(make: Any) -> None:
    with pytest.raises(CodecError, match=f"telemetry samples has {MAX_GPUS + 1} entries"):
        codec.telemetry_to_pb((make.sample("GPU-0"),) * (MAX_GPUS + 1))


def test_an_enum_of_a_newer_peer_becomes_its_fallback_or_is_refused(make: Any) -> None:
    pb = codec.finding_to_pb(make.fault("a"))
    pb.device_fault.severity = 99  # type: ignore[assignment]
    pb.device_fault.scope = 99  # type: ignore[assignment]
    decoded = codec.finding_from_pb(pb)
    assert isinstance(decoded, DeviceFault)
    assert (decoded.severity, decoded.scope) == (Severity.ERROR, Scope.HOST)
    pb.device_fault.severity = 0  # type: ignore[assignment]
    with pytest.raises(CodecError, match="finding severity is not set"):
        codec.finding_from_pb(pb)
    pb = codec.finding_to_pb(make.fault("a"))
    pb.device_fault.fault_class = 99  # type: ignore[assignment]
    with pytest.raises(CodecError, match="finding fault_class is 99"):
        codec.finding_from_pb(pb)
