"""Who may come in, and what another site's page cannot make a browser do."""

import dataclasses
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from fleetd.ports import Peer, Refused
from fleetd.web.config import WebConfig
from tests.web.conftest import site

Play = Callable[[Coroutine[Any, Any, None]], None]

RELEASE = "/api/v1/hosts/h00001/release"
QUARANTINE = "/api/v1/hosts/h00001/quarantine"
WHY = {"reason": "a test"}
READS = [
    "/api/v1/hosts",
    "/api/v1/fleet/map",
    "/api/v1/fleet",
    "/api/v1/hosts/h00001",
    "/api/v1/hosts/h00001/timeline",
    "/api/v1/hosts/h00001/telemetry",
    "/api/v1/facts",
    "/api/v1/policy",
    "/api/v1/openapi.json",
    "/sd/agents",
    "/metrics",
]
CHANGES = [
    *(f"/api/v1/hosts/h00001/{verb}" for verb in ("quarantine", "release", "burnin", "repair", "repaired", "retire")),
    "/api/v1/hosts/h00001/swap",
    "/api/v1/hosts/h00001/job-ended",
    "/api/v1/budgets/rearm",
    "/api/v1/automation/stop",
    "/api/v1/automation/resume",
    "/api/v1/incidents/storm/x/1/close",
]


def test_only_the_page_the_health_and_the_log_in_are_open(play: Play, tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path) as here, here.client() as nobody:
            for path in ("/", "/healthz", "/readyz"):
                assert (await nobody.get(path)).status_code == 200, path
            for path in [*READS, "/api/v1/events", "/api/v1/nothing", "/nothing"]:
                answer = await nobody.get(path)
                assert answer.status_code == 401, path
                assert answer.headers["www-authenticate"].startswith("Bearer"), path
                assert set(answer.json()) == {"error"}
            for path in [*CHANGES, "/hooks/alertmanager", "/api/v1/nothing"]:
                assert (await nobody.post(path, json=WHY)).status_code == 401, path
            assert (await nobody.get("/api/v1/session")).status_code == 401

    play(scene())


def test_a_viewer_reads_and_changes_nothing(play: Play, tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path) as here, here.client("viewer") as viewer:
            for path in READS:
                assert (await viewer.get(path)).status_code == 200, path
            for path in [*CHANGES, "/hooks/alertmanager"]:
                answer = await viewer.post(path, json=WHY)
                assert answer.status_code == 403, path
                assert "viewer1 has the role viewer" in answer.json()["error"]
            assert here.controller.judge.decisions_total == 0

    play(scene())


def test_a_hook_hands_in_alerts_and_does_nothing_else(play: Play, tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path) as here, here.client("hook") as hook:
            for path in READS:
                assert (await hook.get(path)).status_code == 403, path
            for path in CHANGES:
                assert (await hook.post(path, json=WHY)).status_code == 403, path
            assert (await hook.post("/hooks/alertmanager", json={"alerts": []})).status_code == 200
            answer = await hook.post("/api/v1/session", json={"token": here.token["hook"]})
            assert (answer.status_code, "set-cookie" in answer.headers) == (403, False)

    play(scene())


def test_an_operator_acts_under_his_own_name(play: Play, tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path) as here, here.client("operator") as operator:
            answer = await operator.post(QUARANTINE, json=WHY)
            assert answer.status_code == 200
            assert answer.json()["holds"][0]["owner"] == "operator:operator1"

    play(scene())


@pytest.mark.parametrize(
    ("shown", "status"),
    [
        (Peer(name="bob", role="operator"), 200),
        (Peer(name="bob", role="viewer"), 403),
        (Peer(name="h00001", role="agent"), 403),
        (Refused("the certificate must name one peer"), 403),
        (None, 401),
    ],
)
def test_a_certificate_says_who_it_is(play: Play, tmp_path: Path, shown: Peer | Refused | None, status: int) -> None:
    async def scene() -> None:
        async with site(tmp_path) as here, here.client(certificate=shown) as client:
            answer = await client.post(QUARANTINE, json=WHY)
            assert answer.status_code == status
            if status == 200:
                assert answer.json()["holds"][0]["owner"] == "operator:bob"

    play(scene())


def test_an_agents_certificate_reads_nothing_either(play: Play, tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path) as here, here.client(certificate=Peer(name="h00001", role="agent")) as agent:
            for path in READS:
                assert (await agent.get(path)).status_code == 403, path

    play(scene())


@pytest.mark.parametrize("authorization", ["Bearer no-such-token", "Bearer ", "Basic YTpi", "Bearer " + "x" * 5000, ""])
def test_a_token_that_is_no_good_is_told_and_nothing_else_is_tried(
    play: Play, tmp_path: Path, authorization: str
) -> None:
    """Else somebody with a certificate would act under another name than he means."""

    async def scene() -> None:
        operator = Peer(name="bob", role="operator")
        async with site(tmp_path) as here, here.client(certificate=operator) as client:
            answer = await client.get("/api/v1/fleet", headers={"Authorization": authorization})
            assert answer.status_code == 401

    play(scene())


def test_a_log_in_makes_a_cookie_that_scripts_and_other_sites_do_not_get(play: Play, tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path) as here, here.client() as browser:
            answer = await browser.post("/api/v1/session", json={"token": here.token["operator"]})
            assert answer.status_code == 200
            cookie = answer.headers["set-cookie"].lower()
            assert "httponly" in cookie
            assert "samesite=strict" in cookie
            assert "path=/" in cookie
            assert "domain" not in cookie
            assert here.token["operator"] not in answer.text + cookie
            assert answer.headers["cache-control"] == "no-store"
            me = (await browser.get("/api/v1/session")).json()
            assert me == {"name": "operator1", "role": "operator", "csrf": answer.json()["csrf"]}
            assert (await browser.get("/api/v1/fleet")).status_code == 200

    play(scene())


def test_under_tls_the_cookie_is_secure_and_bound_to_the_host(play: Play, tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path) as here, here.client() as browser:
            browser.base_url = "https://fleet.example"
            answer = await browser.post("/api/v1/session", json={"token": here.token["viewer"]})
            cookie = answer.headers["set-cookie"]
            assert cookie.startswith("__Host-fleetd=")
            assert "Secure" in cookie
            assert "strict-transport-security" not in answer.headers  # other ports of this host may be plain HTTP
            assert (await browser.get("/api/v1/fleet")).status_code == 200

    play(scene())


def test_a_change_by_cookie_shows_the_sessions_secret(play: Play, tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path) as here, here.client() as browser:
            csrf = (await browser.post("/api/v1/session", json={"token": here.token["operator"]})).json()["csrf"]
            for shown in ({}, {"X-Fleetd-CSRF": ""}, {"X-Fleetd-CSRF": "x" * 43}, {"X-Fleetd-CSRF": "ü"}):
                raw = {key: value.encode() for key, value in shown.items()}
                assert (await browser.post(QUARANTINE, json=WHY, headers=raw)).status_code == 403
                assert (await browser.delete("/api/v1/session", headers=raw)).status_code == 403
            assert here.controller.judge.decisions_total == 0
            assert (await browser.post(QUARANTINE, json=WHY, headers={"X-Fleetd-CSRF": csrf})).status_code == 200

    play(scene())


OTHER_SITES = [
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://127.0.0.1:7481"},
    {"Origin": "http://127.0.0.1:7480.evil.example"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
]


@pytest.mark.parametrize("by", ["token", "cookie", "certificate", "nothing"])
def test_another_sites_page_changes_nothing(play: Play, tmp_path: Path, by: str) -> None:
    async def scene() -> None:
        operator = Peer(name="bob", role="operator") if by == "certificate" else None
        role = "operator" if by == "token" else None
        everybody = by == "nothing"
        async with site(tmp_path, open_to_all=everybody) as here, here.client(role, certificate=operator) as browser:
            more = {}
            if by == "cookie":
                session = await browser.post("/api/v1/session", json={"token": here.token["operator"]})
                more = {"X-Fleetd-CSRF": session.json()["csrf"]}
            for headers in OTHER_SITES:
                answer = await browser.post(QUARANTINE, json=WHY, headers={**headers, **more})
                assert answer.status_code == 403, headers
                assert "may" in answer.json()["error"], headers
            assert here.controller.judge.decisions_total == 0
            own = {"Origin": "http://127.0.0.1:7480", "Sec-Fetch-Site": "same-origin"}
            assert (await browser.post(QUARANTINE, json=WHY, headers={**own, **more})).status_code == 200

    play(scene())


def test_a_form_of_another_site_is_no_change(play: Play, tmp_path: Path) -> None:
    """What a form can send without asking first is refused by its type, also where everybody is believed."""

    async def scene() -> None:
        async with site(tmp_path, open_to_all=True) as here, here.client() as browser:
            for kind in ("application/x-www-form-urlencoded", "text/plain", "multipart/form-data; boundary=x", ""):
                answer = await browser.post(QUARANTINE, content=b'{"reason": "x"}', headers={"Content-Type": kind})
                assert answer.status_code == 415, kind
            assert here.controller.judge.decisions_total == 0

    play(scene())


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "127.evil.example"},
        {"Host": ""},
        {"X-Forwarded-For": "10.0.0.1"},
        {"Forwarded": "for=10.0.0.1"},
    ],
)
def test_where_everybody_is_believed_nobody_comes_by_another_name(
    play: Play, tmp_path: Path, headers: dict[str, str]
) -> None:
    """A name that was made to point to 127.0.0.1 (DNS rebinding), or a proxy that lets strangers in."""

    async def scene() -> None:
        async with site(tmp_path, open_to_all=True) as here, here.client() as client:
            for path in ("/api/v1/fleet", "/"):
                assert (await client.get(path, headers=headers)).status_code == 403
            assert (await client.get("/api/v1/session")).json()["name"] == "unauthenticated"

    play(scene())


def test_a_withdrawn_token_ends_what_came_by_it_within_a_second(play: Play, tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path) as here, here.client() as browser, here.client("operator") as script:
            csrf = (await browser.post("/api/v1/session", json={"token": here.token["operator"]})).json()["csrf"]
            assert here.tokens is not None
            rest = here.tokens.read_text().splitlines()[1:]
            here.tokens.write_text("\n".join(rest))
            here.clock.pass_s(1)
            assert (await script.get("/api/v1/fleet")).status_code == 401
            assert (await browser.get("/api/v1/fleet")).status_code == 401
            assert (await browser.post(QUARANTINE, json=WHY, headers={"X-Fleetd-CSRF": csrf})).status_code == 401

    play(scene())


def test_a_session_ends_by_itself_and_by_its_owner(play: Play, tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path, session_seconds=100.0) as here, here.client() as browser:
            token = {"token": here.token["operator"]}
            csrf = (await browser.post("/api/v1/session", json=token)).json()["csrf"]
            kept = dict(browser.cookies)
            answer = await browser.delete("/api/v1/session", headers={"X-Fleetd-CSRF": csrf})
            assert answer.status_code == 204
            assert not browser.cookies
            browser.cookies.update(kept)
            assert (await browser.get("/api/v1/fleet")).status_code == 401
            browser.cookies.clear()
            await browser.post("/api/v1/session", json=token)
            here.clock.pass_s(99)
            assert (await browser.get("/api/v1/fleet")).status_code == 200
            here.clock.pass_s(1)
            assert (await browser.get("/api/v1/fleet")).status_code == 401

    play(scene())


def test_log_ins_cannot_be_tried_without_end(play: Play, tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path) as here, here.client() as browser:
            said = [(await browser.post("/api/v1/session", json={"token": "x"})).status_code for _ in range(25)]
            assert said == [401] * 20 + [429] * 5
            good = {"token": here.token["viewer"]}
            said = [(await browser.post("/api/v1/session", json=good)).status_code for _ in range(25)]
            assert said == [200] * 20 + [429] * 5, "others who try keep nobody out; he may not open them without end"
            here.clock.pass_s(60)
            assert (await browser.post("/api/v1/session", json={"token": "x"})).status_code == 401

    play(scene())


def test_what_anybody_may_send_is_short(play: Play, tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path) as here, here.client() as browser:
            answer = await browser.post("/api/v1/session", json={"token": "x" * 5000})
            assert answer.status_code == 413
            assert "4096 bytes" in answer.json()["error"]

    play(scene())


def test_questions_of_one_peer_are_limited_and_those_of_another_are_not(play: Play, tmp_path: Path) -> None:
    async def scene() -> None:
        async with (
            site(tmp_path, reads_per_second=0.5) as here,
            here.client("viewer") as viewer,
            here.client("operator") as operator,
        ):
            said = [(await viewer.get(path)).status_code for path in ("/api/v1/fleet", "/metrics", "/sd/agents") * 2]
            assert said == [200] * 5 + [429]
            assert (await viewer.get("/api/v1/fleet")).headers["retry-after"] == "3"
            assert (await operator.get("/api/v1/fleet")).status_code == 200
            assert (await viewer.get("/readyz")).status_code == 200
            here.clock.pass_s(2)
            assert (await viewer.get("/api/v1/fleet")).status_code == 200

    play(scene())


def test_changes_of_one_peer_are_limited_and_those_of_another_are_not(play: Play, tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path, changes_per_minute=8.0) as here, here.client("operator") as operator:
            said = [(await operator.post(RELEASE, json=WHY)).status_code for _ in range(4)]
            assert said == [409, 409, 429, 429]
            last = await operator.post(RELEASE, json=WHY)
            assert int(last.headers["retry-after"]) == 8
            assert (await operator.get("/api/v1/fleet")).status_code == 200
            async with here.client(certificate=Peer(name="bob", role="operator")) as other:
                assert (await other.post(RELEASE, json=WHY)).status_code == 409
            here.clock.pass_s(8)
            assert (await operator.post(RELEASE, json=WHY)).status_code == 409

    play(scene())


def test_every_answer_tells_the_browser_to_run_nothing_foreign(play: Play, tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path) as here, here.client("viewer") as viewer:
            for path in ("/", "/api/v1/hosts", "/static/none.js", "/nothing", "/api/v1/hosts/%00", "/metrics"):
                answer = await viewer.get(path)
                policy = answer.headers["content-security-policy"]
                assert "default-src 'self'" in policy
                assert "unsafe" not in policy
                assert answer.headers["x-content-type-options"] == "nosniff"
                assert not [name for name in answer.headers if name.startswith("access-control")]

    play(scene())


def test_no_header_opens_the_api_to_other_origins(play: Play, tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path) as here, here.client("operator") as operator:
            asked = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
            answer = await operator.options(QUARANTINE, headers=asked)
            assert answer.status_code == 405
            assert not [name for name in answer.headers if name.startswith("access-control")]

    play(scene())


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"insecure": True, "listen": "0.0.0.0:7480"}, "not the loopback"),
        ({"insecure": True, "cert": "c"}, "exclude each other"),
        ({}, "cert: missing"),
        ({"cert": "c"}, "key: missing"),
        ({"cert": "c", "key": "k"}, "nobody could come in"),
        ({"insecure": True, "listen": "localhost"}, "no ADDRESS:PORT"),
        ({"insecure": True, "listen": "127.0.0.1:99999"}, "no ADDRESS:PORT"),
        ({"insecure": True, "agents_port": 0}, "agents_port"),
        ({"insecure": True, "connections_max": 0}, "connections_max"),
        ({"insecure": True, "session_seconds": float("inf")}, "session_seconds"),
    ],
)
def test_a_configuration_that_would_let_anybody_or_nobody_in_is_refused(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        WebConfig(**values)


def test_a_configuration_is_frozen() -> None:
    config = WebConfig(insecure=True)
    assert config.open
    assert not dataclasses.replace(config, tokens=Path("t")).open
