"""What is told of hosts and the fleet: pages, filters, tags; strings stay data."""

import json
import random
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from fleetd.model.event import FindingReceived
from fleetd.model.host import Host, Lifecycle, Place
from fleetd.model.ids import HostName
from fleetd.model.telemetry import Telemetry
from fleetd.ports import Peer
from tests.web.conftest import NOW_S, Site, site
from tests.web.made import fault_of, host_of, samples_of, xid_of

Play = Callable[[Coroutine[Any, Any, None]], None]
EVIL = "<script>alert(1)</script>\"'`]]><img src=x onerror=alert(2)>"
RNG = random.Random(1)  # noqa: S311 - made readings
OPERATOR = Peer(name="alice", role="operator")


async def _ok(client: httpx.AsyncClient, path: str, **params: Any) -> Any:
    answer = await client.get(path, params=params or None)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def _walk(client: httpx.AsyncClient, **params: Any) -> list[str]:
    """All pages."""
    names: list[str] = []
    more = True
    while more:
        page = await _ok(client, "/api/v1/hosts", after=names[-1] if names else "", **params)
        names += [host["name"] for host in page["hosts"]]
        more = page["more"]
    return names


def _varied(count: int) -> list[Host]:
    rng = random.Random(3)  # noqa: S311 - a made fleet
    states = list(Lifecycle)
    return [host_of(n, at_s=NOW_S, state=rng.choice(states), gpus=2) for n in range(count)]


def test_pages_together_are_the_fleet_each_host_once(play: Play, tmp_path: Path) -> None:
    async def scene() -> None:
        hosts = _varied(60)
        async with site(tmp_path, hosts) as here, here.client("viewer") as viewer:
            for limit in (1, 7, 60, 500):
                assert await _walk(viewer, limit=limit) == [host.name for host in hosts]
            page = await _ok(viewer, "/api/v1/hosts", limit=60)
            assert page["more"] is False

    play(scene())


def test_filters_must_all_hold(play: Play, tmp_path: Path) -> None:
    async def scene() -> None:
        hosts = _varied(80)
        async with site(tmp_path, hosts) as here, here.client("viewer") as viewer:
            asked: list[tuple[dict[str, Any], Callable[[Host], bool]]] = [
                ({"state": "suspect"}, lambda h: h.state is Lifecycle.SUSPECT),
                ({"state": ["new", "healthy"]}, lambda h: h.state in {Lifecycle.NEW, Lifecycle.HEALTHY}),
                ({"rack": "r002"}, lambda h: h.place.rack == "r002"),
                ({"pool": "train-b"}, lambda h: h.place.pool == "train-b"),
                ({"sku": "AMD Instinct MI300X"}, lambda h: h.inventory[0].vendor == "amd"),
                ({"q": "H0002"}, lambda h: "h0002" in h.name),
                ({"q": "3", "state": "retired"}, lambda h: "3" in h.name and h.state is Lifecycle.RETIRED),
                ({"flag": "away"}, lambda h: h.state is not Lifecycle.RETIRED),
                ({"flag": "held"}, lambda _: False),
                ({"rack": "nowhere"}, lambda _: False),
            ]
            for params, fits in asked:
                assert await _walk(viewer, limit=9, **params) == [h.name for h in hosts if fits(h)], params

    play(scene())


def test_the_map_shows_every_host_at_its_place_and_as_it_is(play: Play, tmp_path: Path) -> None:
    async def scene() -> None:
        hosts = [*_varied(40), replace(host_of(99, at_s=NOW_S), place=Place())]
        async with site(tmp_path, hosts) as here, here.client("viewer") as viewer:
            await here.controller.desk.quarantine(OPERATOR, HostName("h00005"), "a test")
            fleet = await _ok(viewer, "/api/v1/fleet/map")
            assert [(r["pool"], r["name"]) for r in fleet["racks"]] == [
                ("research", "r002"),
                ("train-a", "r000"),
                ("train-b", "r001"),
                (None, None),
            ]
            shown = {host[0]: (rack["name"], *host[1:]) for rack in fleet["racks"] for host in rack["hosts"]}
            assert len(shown) == len(hosts)
            page = await _ok(viewer, "/api/v1/hosts", limit=500)
            for host in page["hosts"]:
                rack, state, flags, gpus = shown[host["name"]]
                assert fleet["states"][state] == host["state"]
                assert (rack, gpus) == (host["rack"], host["gpus"])
                assert bool(flags & fleet["flags"]["held"]) == bool(host["holds"])
                assert bool(flags & fleet["flags"]["away"]) == (host["state"] != "retired")
            assert shown["h00005"][2] & fleet["flags"]["held"]

    play(scene())


@pytest.mark.parametrize("path", ["/api/v1/hosts", "/api/v1/hosts?limit=2&state=healthy", "/api/v1/fleet/map"])
def test_a_tag_holds_until_something_changes(play: Play, tmp_path: Path, path: str) -> None:
    async def scene() -> None:
        async with site(tmp_path) as here, here.client("viewer") as viewer:
            first = await viewer.get(path)
            tag = first.headers["etag"]
            same = await viewer.get(path, headers={"If-None-Match": f'"other", {tag}'})
            assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", tag)
            assert (await viewer.get(path, headers={"If-None-Match": '"other"'})).status_code == 200
            other = await viewer.get("/api/v1/hosts?limit=3", headers={"If-None-Match": tag})
            assert other.status_code == 200
            await here.controller.desk.quarantine(OPERATOR, HostName("h00001"), "a test")
            changed = await viewer.get(path, headers={"If-None-Match": tag})
            assert changed.status_code == 200
            assert changed.headers["etag"] != tag

    play(scene())


def test_tags_of_another_process_do_not_count(play: Play, tmp_path: Path) -> None:
    """Two controllers number their changes alike; what one has told is not what the other would."""

    async def scene() -> None:
        folders = [tmp_path / "a", tmp_path / "b"]
        for folder in folders:
            folder.mkdir()
        async with AsyncExitStack() as stack:
            here = [await stack.enter_async_context(site(folder)) for folder in folders]
            one, other = [await stack.enter_async_context(each.client("viewer")) for each in here]
            tag = (await one.get("/api/v1/hosts")).headers["etag"]
            assert (await other.get("/api/v1/hosts", headers={"If-None-Match": tag})).status_code == 200

    play(scene())


def test_a_hosts_tag_holds_until_it_or_its_readings_change(play: Play, tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path) as here, here.client("viewer") as viewer:
            path = "/api/v1/hosts/h00001"
            tag = (await viewer.get(path)).headers["etag"]
            await here.controller.desk.quarantine(OPERATOR, HostName("h00002"), "of another host")
            assert (await viewer.get(path, headers={"If-None-Match": tag})).status_code == 304
            host = here.controller.judge.hosts[HostName("h00001")]
            readings = samples_of(host, at_s=NOW_S, rng=RNG)
            await here.controller.intake.telemetry_received(host.name, Telemetry.of(readings))
            answer = await viewer.get(path, headers={"If-None-Match": tag})
            assert answer.status_code == 200
            assert answer.json()["samples"][0]["power_watts"] == readings[0].power_watts

    play(scene())


def test_a_host_is_told_with_its_findings_its_story_and_its_readings(play: Play, tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path, 40) as here, here.client("viewer") as viewer:
            judge, intake = here.controller.judge, here.controller.intake
            host = judge.hosts[HostName("h00001")]
            for finding in (xid_of(host, at_s=NOW_S), fault_of(host, at_s=NOW_S)):
                await judge.submit(FindingReceived(host=host.name, finding=finding))
            for back in (2, 1, 0):
                readings = samples_of(host, at_s=NOW_S - 10 * back, rng=RNG)
                await intake.telemetry_received(host.name, Telemetry.of(readings))
            told = await _ok(viewer, "/api/v1/hosts/h00001")
            assert told["host"]["state"] == "quarantined"
            assert [f["id"] for f in told["findings"]] == ["h00001-burnin-0", "h00001-xid-0"]
            story = (await _ok(viewer, "/api/v1/hosts/h00001/timeline"))["entries"]
            assert [entry["event"] for entry in story] == ["FindingReceived", "FindingReceived", "AgentConnected"]
            assert story[0]["finding"]["id"] == "h00001-burnin-0"
            assert [order["kind"] for order in story[0]["orders"]] == ["Quarantine"]
            assert story[0]["state"] == "quarantined"
            lines = await _ok(viewer, "/api/v1/hosts/h00001/telemetry")
            assert lines["at_s"] == [NOW_S - 20, NOW_S - 10, NOW_S]
            assert len(lines["gpus"]) == 8
            assert lines["gpus"][0]["power_watts"][-1] == pytest.approx(readings[0].power_watts, rel=1e-6)
            assert (await _ok(viewer, "/api/v1/hosts/h00002/telemetry")) == {"at_s": [], "gpus": []}

    play(scene())


def test_the_fleet_is_told_in_numbers_and_the_policy_in_words(play: Play, tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path, 40) as here, here.client("viewer") as viewer:
            host = here.controller.judge.hosts[HostName("h00001")]
            await here.controller.judge.submit(FindingReceived(host=host.name, finding=fault_of(host, at_s=NOW_S)))
            await here.controller.desk.stop_automation(OPERATOR, "a test")
            fleet = await _ok(viewer, "/api/v1/fleet")
            assert (fleet["hosts"], fleet["held"], fleet["connected"]) == (40, 1, 0)
            assert fleet["states"] == {**dict.fromkeys(fleet["states"], 0), "healthy": 39, "quarantined": 1}
            assert fleet["stopped"]["reason"] == "a test"
            policy = await _ok(viewer, "/api/v1/policy")
            assert policy["name"] == "default"
            assert policy["rules"][0]["name"] == "bad-hardware"
            assert policy["rules"][0]["when"].startswith("finding: burnin; verdict: fail; fault_class: chip-persistent")
            whole, rack = policy["budgets"]
            assert (whole["key"], whole["held"], whole["held_max"]) == ({"area": "fleet", "name": ""}, 1, 2)
            assert (rack["key"]["name"], rack["held"], rack["recent"]) == ("r000", 1, 1)
            assert (await viewer.get("/api/v1/power")).status_code == 404

    play(scene())


def test_the_audit_trail_is_paged_and_filtered(play: Play, tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path) as here, here.client("viewer") as viewer:
            for number in range(3):
                await here.controller.desk.quarantine(OPERATOR, HostName(f"h0000{number}"), f"reason {number}")
            first = await _ok(viewer, "/api/v1/facts", limit=2)
            assert [fact["reason"] for fact in first["facts"]] == ["reason 0", "reason 1"]
            assert first["more"] is True
            rest = await _ok(viewer, "/api/v1/facts", after=first["facts"][-1]["position"])
            assert [fact["reason"] for fact in rest["facts"]] == ["reason 2"]
            assert rest["more"] is False
            newest = await _ok(viewer, "/api/v1/facts", newest="true", limit=2)
            assert [fact["reason"] for fact in newest["facts"]] == ["reason 2", "reason 1"]
            assert newest["more"] is True
            oldest = await _ok(viewer, "/api/v1/facts", newest="true", before=newest["facts"][-1]["position"])
            assert [fact["reason"] for fact in oldest["facts"]] == ["reason 0"]
            assert oldest["more"] is False
            one = await _ok(viewer, "/api/v1/facts", host="h00001", who="alice", event="OperatorQuarantined")
            assert [(f["who"], f["was"], f["refused"]) for f in one["facts"]] == [("alice", "healthy", False)]
            everything = await _ok(viewer, "/api/v1/facts", people="false", host="h00001")
            assert len(everything["facts"]) == 2
            assert (await _ok(viewer, "/api/v1/facts", since=NOW_S + 1))["facts"] == []

    play(scene())


SQL = ["' OR '1'='1", "x'; DROP TABLE journal; --", "%", "_", "\\", "a\u0301'\"", EVIL]


def test_a_filter_is_a_string_and_no_piece_of_sql(play: Play, tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path) as here, here.client("viewer") as viewer:
            await here.controller.desk.quarantine(OPERATOR, HostName("h00001"), "a test")
            for word in SQL:
                for name in ("host", "who", "event"):
                    assert (await _ok(viewer, "/api/v1/facts", **{name: word}))["facts"] == [], word
                for name in ("pool", "rack", "sku", "q"):
                    assert (await _ok(viewer, "/api/v1/hosts", **{name: word}))["hosts"] == [], word
            assert len((await _ok(viewer, "/api/v1/facts"))["facts"]) == 1

    play(scene())


def test_markup_in_names_and_reasons_stays_data(play: Play, tmp_path: Path) -> None:
    async def scene() -> None:
        strange = replace(host_of(1, at_s=NOW_S), why=EVIL, place=Place(pool=EVIL, rack=EVIL))
        async with site(tmp_path, [strange]) as here, here.client("viewer") as viewer:
            await here.controller.desk.quarantine(OPERATOR, strange.name, EVIL)
            for path in ("hosts", "fleet/map", "hosts/h00001", "hosts/h00001/timeline", "facts"):
                answer = await viewer.get(f"/api/v1/{path}")
                assert answer.headers["content-type"] == "application/json"
                assert EVIL in _strings(answer.json()), path

    play(scene())


def _strings(value: Any) -> str:
    if isinstance(value, dict):
        return "\n".join(_strings(one) for one in value.values())
    if isinstance(value, list):
        return "\n".join(_strings(one) for one in value)
    return str(value)


OUTSIDE = [
    "/static/../config.py",
    "/static/..%2fconfig.py",
    "/static/%2e%2e/config.py",
    "/static//etc/passwd",
    "/static/....//config.py",
    "/static/%00",
    "/static/",
    "/static/__init__.py",
    "//etc/passwd",
]


def test_no_path_leads_out_of_the_pages_folder(play: Play, tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path) as here, here.client("viewer") as viewer:
            for path in OUTSIDE:
                answer = await viewer.get(httpx.URL(f"http://127.0.0.1:7480{path}"))
                assert answer.status_code == 404, path
                assert set(answer.json()) == {"error"}, path

    play(scene())


NO_NAMES = ["..", "..%2f..%2fetc%2fpasswd", "h1%00", "a%0ab", "-x", "%f0%9f%92%a9", "x" * 254, "h1;rm", "a b", "%27"]


def test_a_name_that_no_host_can_have_is_refused_at_the_border(play: Play, tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path) as here, here.client("operator") as operator:
            for name in NO_NAMES:
                for below in ("", "/timeline", "/telemetry"):
                    answer = await operator.get(httpx.URL(f"http://127.0.0.1:7480/api/v1/hosts/{name}{below}"))
                    assert answer.status_code in {404, 422}, (name, answer.text)
                path = httpx.URL(f"http://127.0.0.1:7480/api/v1/hosts/{name}/quarantine")
                assert (await operator.post(path, json={"reason": "x"})).status_code in {404, 422}, name
            assert here.controller.judge.decisions_total == 0

    play(scene())


NOT_UNDERSTOOD = [
    ("hosts?stat=new", "stat"),
    ("hosts?state=broken", "state"),
    ("hosts?flag=hold", "flag"),
    ("hosts?limit=0", "limit"),
    ("hosts?limit=501", "limit"),
    ("hosts?limit=x", "limit"),
    ("hosts?q=" + "x" * 300, "q"),
    ("hosts?q=%00", "q"),
    ("hosts?rack=r000&rack=r001", "'rack' is given 2 times"),
    ("hosts?state=healthy&limit=1&state=new&limit=2&limit=3", "'limit' is given 3 times"),
    ("facts?after=-1", "after"),
    ("facts?who=alice&who=bob", "'who' is given 2 times"),
    ("facts?after=99999999999999999999", "after"),
    ("facts?since=nan", "since"),
    ("facts?people=perhaps", "people"),
    ("fleet?x=1", "'x' is not known here"),
    ("fleet/map?pool=a", "'pool'"),
    ("hosts/h00001?verbose=1", "'verbose'"),
    ("events?x=1", "'x'"),
]


def test_a_question_that_is_not_understood_is_told_in_one_line(play: Play, tmp_path: Path) -> None:
    """A misspelt filter must not be taken for none."""

    async def scene() -> None:
        async with site(tmp_path) as here, here.client("viewer") as viewer:
            for query, said in NOT_UNDERSTOOD:
                answer = await viewer.get(f"/api/v1/{query}")
                assert answer.status_code == 422, query
                assert said in answer.json()["error"], query
                assert "\n" not in answer.json()["error"], query
                assert len(answer.json()["error"]) <= 300, query

    play(scene())


def test_answers_are_compressed_where_that_is_taken_and_the_secret_never(play: Play, tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path, 100) as here, here.client("viewer") as viewer:
            for path in ("/api/v1/hosts", "/api/v1/fleet/map", "/"):
                packed = await viewer.get(path, headers={"Accept-Encoding": "gzip"})
                plain = await viewer.get(path, headers={"Accept-Encoding": "identity"})
                assert packed.headers["content-encoding"] == "gzip"
                assert "content-encoding" not in plain.headers
                assert packed.content == plain.content
                assert int(packed.headers["content-length"]) < int(plain.headers["content-length"])
                assert "accept-encoding" in packed.headers["vary"].lower()
            answer = await viewer.get("/api/v1/session", headers={"Accept-Encoding": "gzip"})
            assert "content-encoding" not in answer.headers

    play(scene())


def test_the_map_of_a_large_fleet_is_small(play: Play, tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path, 2000) as here, here.client("viewer") as viewer:
            answer = await viewer.get("/api/v1/fleet/map")
            assert int(answer.headers["content-length"]) < 2000 * 10
            assert sum(len(rack["hosts"]) for rack in json.loads(answer.content)["racks"]) == 2000

    play(scene())


def test_head_is_get_without_a_body_and_other_methods_are_refused(play: Play, tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path) as here, here.client("operator") as operator:
            assert (await operator.head("/")).status_code == 200
            assert (await operator.head("/api/v1/events")).status_code == 405
            answer = await operator.put("/api/v1/fleet", json={})
            assert (answer.status_code, answer.headers["allow"]) == (405, "GET")
            assert (await operator.get("/api/v1/nothing")).status_code == 404
            assert (await operator.get("/api/v1/hosts/none")).status_code == 404

    play(scene())


def test_a_bug_is_no_answer_and_is_told(play: Play, tmp_path: Path) -> None:
    def broken(_accept: str) -> tuple[str, bytes]:
        raise RuntimeError("a bug")

    async def scene(here: Site) -> None:
        async with here.client("viewer") as viewer:
            with pytest.raises(RuntimeError, match="a bug"):
                await viewer.get("/metrics")
        assert [str(bug) for bug in here.bugs] == ["a bug"]
        here.bugs.clear()

    async def whole() -> None:
        async with site(tmp_path, metrics=broken) as here:
            await scene(here)

    play(whole())
