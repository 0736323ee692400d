"""What people change: by whom, with which reason, and what is refused."""

import json
import re
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fleetd.model.event import FindingReceived
from fleetd.model.fact import FactQuery
from fleetd.model.fleet import FleetRecord, Incident, IncidentKind
from fleetd.model.host import Lifecycle
from fleetd.model.ids import HostName
from fleetd.ports import StoreError
from fleetd.web.limits import Patience
from tests.web.conftest import NOW_S, Site, site
from tests.web.made import fault_of, host_of

Play = Callable[[Coroutine[Any, Any, None]], None]
H1 = HostName("h00001")
HOST = f"/api/v1/hosts/{H1}"


async def _quarantined(here: Site) -> None:
    host = here.controller.judge.hosts[H1]
    await here.controller.judge.submit(FindingReceived(host=H1, finding=fault_of(host, at_s=NOW_S)))


def test_every_verb_does_what_it_says_and_the_audit_trail_has_it(play: Play, tmp_path: Path) -> None:
    verbs: list[tuple[str, dict[str, Any], str, str]] = [
        ("quarantine", {"drain": "now", "expires_at_s": NOW_S + 60}, "OperatorQuarantined", "quarantined"),
        ("swap", {"old": "GPU-h00001-0", "new": "GPU-new"}, "GpuSwapped", "quarantined"),
        ("repair", {}, "OperatorRepairs", "repairing"),
        ("repaired", {}, "OperatorRepaired", "qualifying"),
        ("release", {"override": True}, "OperatorReleased", "probation"),
        ("burnin", {"level": "quick"}, "OperatorBurnin", "probation"),
        ("retire", {}, "OperatorRetires", "retired"),
    ]

    async def scene() -> None:
        async with site(tmp_path) as here, here.client("operator") as operator:
            for verb, body, _event, state in verbs:
                answer = await operator.post(f"{HOST}/{verb}", json={"reason": f"because of {verb}", **body})
                assert answer.status_code == 200, (verb, answer.text)
                assert answer.json()["name"] == H1
                assert answer.json()["state"] == state, verb
            facts = await here.controller.desk.facts(FactQuery(limit=100, people=True))
            assert [(f.event, f.who, f.reason) for f in facts] == [
                (event, "operator1", f"because of {verb}") for verb, _body, event, _state in verbs
            ]

    play(scene())


def test_a_job_end_is_taken_note_of(play: Play, tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path) as here, here.client("operator") as operator:
            body = {"job": "4711", "ok": False, "ran_seconds": 12}
            assert (await operator.post(f"{HOST}/job-ended", json=body)).status_code == 200
            (fact,) = await here.controller.desk.facts(FactQuery(limit=9, event="JobEnded"))
            assert (fact.job_ok, fact.job_seconds) == (False, 12.0)

    play(scene())


def test_the_kill_switch_goes_on_and_off(play: Play, tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path) as here, here.client("operator") as operator:
            answer = await operator.post("/api/v1/automation/stop", json={"reason": "a test"})
            assert answer.json()["stopped"]["who"] == "operator:operator1"
            answer = await operator.post("/api/v1/automation/resume", json={"reason": "over"})
            assert answer.json()["stopped"] is None
            assert (await operator.post("/api/v1/automation/resume", json={"reason": "again"})).status_code == 409
            assert (await operator.post("/api/v1/budgets/rearm", json={"reason": "none tripped"})).status_code == 409

    play(scene())


def test_an_incident_is_closed_by_its_id_with_its_slashes(play: Play, tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path, 60) as here, here.client("operator") as operator:
            for name in ("h00001", "h00020", "h00040"):
                host = here.controller.judge.hosts[HostName(name)]
                finding = fault_of(host, at_s=NOW_S)
                await here.controller.judge.submit(FindingReceived(host=host.name, finding=finding))
            (incident,) = here.controller.judge.record.incidents
            assert "/" in incident.id
            assert (
                await operator.post("/api/v1/incidents/storm/none/1/close", json={"reason": "x"})
            ).status_code == 404
            answer = await operator.post(f"/api/v1/incidents/{incident.id}/close", json={"reason": "x", "acquit": True})
            assert answer.status_code == 200
            assert answer.json()["incidents"] == []

    play(scene())


def test_a_release_without_the_proof_is_refused_and_says_what_is_missing(play: Play, tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path, 40) as here, here.client("operator") as operator:
            await _quarantined(here)
            answer = await operator.post(f"{HOST}/release", json={"reason": "it looks fine to me"})
            assert answer.status_code == 409
            assert "a passing `smoke` burn-in" in answer.json()["error"]
            assert here.controller.judge.hosts[H1].state is Lifecycle.QUARANTINED
            answer = await operator.post(f"{HOST}/release", json={"reason": "I know", "override": True})
            assert (answer.status_code, answer.json()["holds"]) == (200, [])

    play(scene())


def test_a_change_may_name_what_it_was_decided_on(play: Play, tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path, 40) as here, here.client("operator") as operator:
            seen = (await operator.get(HOST)).json()["version"]
            await _quarantined(here)
            body = {"reason": "it was healthy when I looked", "override": True}
            answer = await operator.post(f"{HOST}/release", json=body, headers={"If-Match": f'"{seen}"'})
            assert answer.status_code == 412
            assert here.controller.judge.hosts[H1].held
            now = (await operator.get(HOST)).json()["version"]
            answer = await operator.post(f"{HOST}/release", json=body, headers={"If-Match": f'"{now}"'})
            assert answer.status_code == 200
            answer = await operator.post(f"{HOST}/quarantine", json={"reason": "x"}, headers={"If-Match": "*"})
            assert answer.status_code == 200

    play(scene())


WRONG: list[tuple[str, Any, str]] = [
    ("quarantine", {}, "reason"),
    ("quarantine", {"reason": ""}, "reason"),
    ("quarantine", {"reason": " \t\n "}, "reason"),
    ("quarantine", {"reason": "x" * 1001}, "reason"),
    ("quarantine", {"reason": 7}, "reason"),
    ("quarantine", {"reason": None}, "reason"),
    ("quarantine", {"reason": "x", "expires_at": 5}, "expires_at"),
    ("quarantine", {"reason": "x", "expires_at_s": "soon"}, "expires_at_s"),
    ("quarantine", {"reason": "x", "expires_at_s": -1}, "expires_at_s"),
    ("quarantine", {"reason": "x", "expires_at_s": 1e300}, "expires_at_s"),
    ("quarantine", {"reason": "x", "drain": "later"}, "drain"),
    ("release", {"reason": "x", "override": "yes"}, "override"),
    ("release", {"reason": "x", "override": 1}, "override"),
    ("burnin", {"reason": "x", "level": ""}, "level"),
    ("burnin", {"reason": "x", "level": "\u0000"}, "level"),
    ("swap", {"reason": "x", "old": "a"}, "new"),
    ("swap", {"reason": "x", "old": "a", "new": "b" * 300}, "new"),
    ("job-ended", {"job": "1", "ok": True, "ran_seconds": -1}, "ran_seconds"),
    ("job-ended", {"job": "1", "ok": True, "ran_seconds": 1, "reason": "x"}, "reason"),
    ("retire", [], "body"),
    ("retire", "reason", "body"),
    ("retire", None, "body"),
]


def test_a_body_that_is_wrong_is_told_in_one_line_and_changes_nothing(play: Play, tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path) as here, here.client("operator") as operator:
            headers = {"Content-Type": "application/json"}
            for verb, body, said in WRONG:
                answer = await operator.post(f"{HOST}/{verb}", content=json.dumps(body), headers=headers)
                assert answer.status_code == 422, (verb, body)
                assert said in answer.json()["error"], (verb, body)
                assert "\n" not in answer.json()["error"], (verb, body)
                here.clock.pass_s(60)
            assert here.controller.judge.decisions_total == 0

    play(scene())


MALFORMED = [
    b"",
    b"{",
    b'{"reason": "x"',
    b"\xff\xfe",
    b'{"reason": "\\ud800"}',
    b'{"reason": "x", "reason": }',
    b"[" * 50_000,
    b'{"a":' * 50_000,
    b'{"reason": "x", "expires_at_s": NaN}',
    b'{"reason": "x", "expires_at_s": ' + b"9" * 5000 + b"}",
]


@pytest.mark.parametrize("path", [f"{HOST}/quarantine", "/hooks/alertmanager"])
def test_a_malformed_body_is_an_answer_and_no_crash(play: Play, tmp_path: Path, path: str) -> None:
    async def scene() -> None:
        async with site(tmp_path) as here, here.client("operator") as operator:
            for body in MALFORMED:
                answer = await operator.post(path, content=body, headers={"Content-Type": "application/json"})
                assert answer.status_code in {400, 422}, (body[:40], answer.text)
                assert set(answer.json()) == {"error"}
            assert here.controller.judge.decisions_total == 0

    play(scene())


def test_what_cannot_be_printed_is_not_kept(play: Play, tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path) as here, here.client("operator") as operator:
            body = {"reason": "\u202e\u0000"}
            assert (await operator.post(f"{HOST}/quarantine", json=body)).status_code == 409  # nothing is left of it
            body = {"reason": "a\u0000b\u202ec\x1b[31m"}
            answer = await operator.post(f"{HOST}/quarantine", json=body)
            assert answer.json()["holds"][0]["reason"] == "a b c [31m"

    play(scene())


def test_what_is_space_to_anybody_is_no_reason(play: Play, tmp_path: Path) -> None:
    """Regular expressions of Python, Rust and JavaScript differ in what is space; the document must not."""
    spaces = [sign for sign in map(chr, range(0x10000)) if sign.isspace() or sign in "\u0085\ufeff"]

    async def scene() -> None:
        async with site(tmp_path) as here, here.client("operator") as operator:
            document = (await operator.get("/api/v1/openapi.json")).json()
            pattern = document["components"]["schemas"]["Change"]["properties"]["reason"]["pattern"]
            for sign in spaces:
                assert re.search(pattern, sign) is None, repr(sign)
                answer = await operator.post(f"{HOST}/repair", json={"reason": sign})
                assert answer.status_code == 422, repr(sign)

    play(scene())


def test_an_oversize_body_is_not_read(play: Play, tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path) as here, here.client("operator") as operator:
            given = 0

            async def endless() -> Any:
                nonlocal given
                while given < 64 << 20:
                    given += 1 << 16
                    yield b"x" * (1 << 16)

            headers = {"Content-Type": "application/json"}
            answer = await operator.post(f"{HOST}/quarantine", content=endless(), headers=headers)
            assert answer.status_code == 413
            assert given <= (1 << 20) + (1 << 17)
            body = json.dumps({"reason": "x" * (1 << 20)})
            assert (await operator.post(f"{HOST}/quarantine", content=body, headers=headers)).status_code == 413
            headers["Content-Length"] = "-5"
            assert (await operator.post(f"{HOST}/quarantine", content=b"{}", headers=headers)).status_code == 413

    play(scene())


def test_nobody_reads_a_body_of_somebody_who_may_not_send_it(play: Play, tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path) as here, here.client("viewer") as viewer:
            given = 0

            async def body() -> Any:
                nonlocal given
                given += 1
                yield b"{}"

            headers = {"Content-Type": "application/json"}
            assert (await viewer.post(f"{HOST}/quarantine", content=body(), headers=headers)).status_code == 403
            assert given == 0

    play(scene())


def test_a_body_that_does_not_come_is_waited_for_only_so_long(play: Play, tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path, patience=Patience(body_s=0.05)) as here:
            said: list[Any] = []

            async def receive() -> Any:
                if not said:
                    await here.clock.sleep_s(1e9)
                return {"type": "http.disconnect"}

            async def send(message: Any) -> None:
                said.append(message)

            token = here.token["operator"].encode()
            headers = [(b"authorization", b"Bearer " + token), (b"content-type", b"application/json")]
            scope = {
                "type": "http",
                "method": "POST",
                "path": f"{HOST}/quarantine",
                "headers": headers,
                "scheme": "http",
                "query_string": b"",
            }
            await here.app.asgi(scope, receive, send)
            assert said[0]["status"] == 408

    play(scene())


def test_a_ledger_that_refuses_is_no_fault_of_the_client(play: Play, tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path) as here, here.client("operator") as operator:
            store = here.controller.judge._store
            commit = store.commit

            def full(_entries: Any) -> None:
                raise StoreError("no space left on the device")

            store.commit = full  # type: ignore[method-assign]
            answer = await operator.post(f"{HOST}/quarantine", json={"reason": "x"})
            assert answer.status_code == 503
            assert "no space left" in answer.json()["error"]
            ready = await operator.get("/readyz")
            assert ready.status_code == 503
            assert "no space left" in ready.json()["error"]
            assert (await operator.get("/healthz")).status_code == 200
            store.commit = commit  # type: ignore[method-assign]
            assert (await operator.post(f"{HOST}/quarantine", json={"reason": "x"})).status_code == 200
            assert (await operator.get("/readyz")).status_code == 200

    play(scene())


def test_a_host_that_nobody_knows_is_404_for_every_verb(play: Play, tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path) as here, here.client("operator") as operator:
            for verb in ("quarantine", "release", "burnin", "repair", "repaired", "retire"):
                answer = await operator.post(f"/api/v1/hosts/nobody/{verb}", json={"reason": "x"})
                assert (answer.status_code, "'nobody'" in answer.json()["error"]) == (404, True)
            assert here.controller.judge.decisions_total == 0

    play(scene())


def test_prometheus_finds_every_agent_that_is_not_retired(play: Play, tmp_path: Path) -> None:
    async def scene() -> None:
        hosts = [host_of(0, at_s=NOW_S), host_of(1, at_s=NOW_S, state=Lifecycle.RETIRED)]
        hosts.append(replace(host_of(2, at_s=NOW_S), inventory=()))
        async with site(tmp_path, hosts, agents_port=9999) as here, here.client("viewer") as viewer:
            found = (await viewer.get("/sd/agents")).json()
            assert found == [
                {
                    "targets": ["h00000:9999"],
                    "labels": {
                        "__meta_fleetd_host": "h00000",
                        "__meta_fleetd_pool": "train-a",
                        "__meta_fleetd_rack": "r000",
                        "__meta_fleetd_sku": "NVIDIA H200",
                    },
                },
                {
                    "targets": ["h00002:9999"],
                    "labels": {
                        "__meta_fleetd_host": "h00002",
                        "__meta_fleetd_pool": "train-a",
                        "__meta_fleetd_rack": "r000",
                    },
                },
            ]

    play(scene())


def test_an_alert_counts_once_however_often_it_is_told(play: Play, tmp_path: Path) -> None:
    alert = {
        "status": "firing",
        "labels": {"alertname": "GpuFellOff", "instance": "h00001:9100", "severity": "critical"},
        "annotations": {"summary": "gone"},
        "startsAt": "2027-01-15T07:59:00Z",
        "fingerprint": "c0ffee0000000001",
    }
    other = {**alert, "labels": {"alertname": "GpuFellOff", "instance": "nobody:9100"}}
    body = {"version": "4", "alerts": [alert, other, {**alert, "status": "resolved"}, "nonsense"]}

    async def scene() -> None:
        async with site(tmp_path) as here, here.client("hook") as hook:
            first = (await hook.post("/hooks/alertmanager", json=body)).json()
            assert (first["firing"], first["resolved"], first["taken"]) == (2, 1, 1)
            assert [("nobody" in why or "alert 4" in why) for why in first["refused"]] == [True, True]
            assert (await hook.post("/hooks/alertmanager", json=body)).json()["taken"] == 0
            (fact,) = await here.controller.desk.facts(FactQuery(limit=9, event="FindingReceived"))
            assert fact.host == H1

    play(scene())


def test_the_fleets_record_is_told_with_its_incidents(play: Play, tmp_path: Path) -> None:
    async def scene() -> None:
        incident = Incident(
            id="storm/x/1",
            kind=IncidentKind.STORM,
            key="x",
            opened_at_s=NOW_S,
            hosts=(H1,),
            hosts_total=1,
            why="many",
            told_at_s=NOW_S,
        )
        async with site(tmp_path) as here, here.client("viewer") as viewer:
            here.controller.judge._record = FleetRecord(incidents=(incident,), incidents_opened=1)
            told = (await viewer.get("/api/v1/fleet")).json()
            assert [one["id"] for one in told["incidents"]] == ["storm/x/1"]

    play(scene())
