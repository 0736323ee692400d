"""Bodies of Alertmanager's webhook: what is read, what is refused, and what a finding of them may never do."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetd.core.alerts import MAX_ALERTS, UnreadableAlerts, code_of, finding_of, read
from fleetd.model.alert import Alert
from fleetd.model.event import FindingReceived
from fleetd.model.finding import DeviceFault, FaultClass, Scope, Severity
from fleetd.model.ids import GpuId, HostName
from tests.stores.ledgers import Ledgerer

AT = "2026-11-30T10:00:00Z"


def alert(labels: dict[str, str], **more: Any) -> dict[str, Any]:
    return {
        "status": "firing",
        "labels": {"alertname": "A", **labels},
        "startsAt": AT,
        "fingerprint": "f1",
        **more,
    }


def one(labels: dict[str, str], **more: Any) -> Alert:
    found = read({"alerts": [alert(labels, **more)]})
    assert found.refused == ()
    (only,) = found.alerts
    return only


@pytest.mark.parametrize(
    ("labels", "host"),
    [
        ({"host": "h1", "instance": "10.0.0.1:9400"}, "h1"),
        ({"Hostname": "h2", "instance": "10.0.0.1:9400"}, "h2"),
        ({"node": "h3"}, "h3"),
        ({"instance": "h4:9400"}, "h4"),
        ({"instance": "h5"}, "h5"),
        ({"instance": "[fd00::1]:9400"}, "fd00::1"),
        ({"host": "", "nodename": "h6"}, "h6"),
    ],
)
def test_the_host_is_found_by_the_usual_labels(labels: dict[str, str], host: str) -> None:
    assert one(labels).host == host


def test_alerts_without_a_fingerprint_are_told_apart_however_long_their_names_are() -> None:
    ids = set()
    for name in ("A" * 150 + "1", "A" * 150 + "2"):
        for begun in ("2026-11-30T10:00:00Z", "2026-11-30T11:00:00Z"):
            ids.add(one({"alertname": name, "host": "h"}, fingerprint=None, startsAt=begun).id)
    assert len(ids) == 4
    assert max(map(len, ids)) <= 80, "it is part of the id of a finding"


@pytest.mark.parametrize(
    ("severity", "means"),
    [("critical", Severity.ERROR), ("PAGE", Severity.ERROR), ("info", Severity.INFO), ("?", Severity.WARNING)],
)
def test_severities(severity: str, means: Severity) -> None:
    assert one({"host": "h", "severity": severity}).severity is means


def test_an_alert_that_fires_anew_is_another_one() -> None:
    first, same = one({"host": "h"}), one({"host": "h"}, annotations={"summary": "said anew"})
    later = one({"host": "h"}, startsAt="2026-11-30T11:00:00.123456789Z")
    assert first.id == same.id != later.id
    assert later.at_s - first.at_s == pytest.approx(3600.123456)


@pytest.mark.parametrize(
    ("item", "why"),
    [
        (alert({}), "no label says which host"),
        ({"labels": {"host": "h"}, "startsAt": AT}, "`alertname` is missing"),
        (alert({"host": "h"}, startsAt="yesterday"), "startsAt is no time"),
        (alert({"host": "h"}, startsAt=None), "startsAt is no time"),
        (alert({"host": "h"}, startsAt="9999999-01-01T00:00:00Z"), "startsAt is no time"),
        (alert({"host": 7}), "no label says which host"),  # type: ignore[dict-item]
        ("text", "no object with `labels`"),
        ({"labels": []}, "no object with `labels`"),
    ],
)
def test_one_that_is_wrong_is_refused_and_the_others_are_taken(item: Any, why: str) -> None:
    found = read({"alerts": [alert({"host": "h"}), item]})
    assert len(found.alerts) == 1
    (refused,) = found.refused
    assert refused.startswith("alert 2: ")
    assert why in refused


def test_too_many_are_refused_as_one() -> None:
    with pytest.raises(UnreadableAlerts, match="max_alerts"):
        read({"alerts": [alert({"host": "h"})] * (MAX_ALERTS + 1)})


@pytest.mark.parametrize(
    ("name", "code"), [("GpuFan Stuck!", "alert.gpufan_stuck"), ("日本", "alert.unnamed"), ("a" * 999, None)]
)
def test_codes_are_fit_for_a_policy(name: str, code: str | None) -> None:
    found = code_of(name)
    assert found == code or (code is None and len(found) == 200)


def test_an_alert_never_accuses_hardware_and_takes_no_host_out() -> None:
    made = Ledgerer()
    made.join(0.0, [f"h{n}" for n in range(40)])
    for n in range(40):
        host = made.replay.hosts[HostName(f"h{n}")]
        labels = {"host": host.name, "severity": "critical", "UUID": host.inventory[0].gpu}
        found = finding_of(one(labels), host)
        assert isinstance(found, DeviceFault)
        assert (found.fault_class, found.scope, found.gpu) == (FaultClass.NONE, Scope.GPU, host.inventory[0].gpu)
        entries = made.at(100.0, FindingReceived(host=found.host, finding=found))
        assert not any(e.host is not None and e.host.held for e in entries)
        assert [type(o).__name__ for e in entries for o in e.orders] == ["Notify"]  # an error: a human is told
    assert made.replay.fleet.record.incidents == ()


def test_a_gpu_that_is_not_there_is_said_and_blames_the_host() -> None:
    made = Ledgerer()
    made.join(0.0, ["h1"])
    found = finding_of(one({"host": "h1", "UUID": "GPU-elsewhere"}), made.replay.hosts[HostName("h1")])
    assert isinstance(found, DeviceFault)
    assert (found.gpu, found.scope, found.index) == (None, Scope.HOST, None)
    assert "GPU-elsewhere, which is not there" in found.why
    assert one({"host": "h1", "UUID": "GPU-x"}).gpu == GpuId("GPU-x")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["alerts", "labels", "status", "startsAt", "annotations", "alertname", "host", "summary"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(body=JSON)
def test_no_body_is_a_crash(body: Any) -> None:
    for one_of in (body, {"alerts": [body]}, {"alerts": body}):
        try:
            found = read(one_of)
        except UnreadableAlerts:
            continue
        assert all(line.isprintable() for line in found.refused)
        json.dumps([a.id for a in found.alerts])
