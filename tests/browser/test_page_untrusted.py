"""What others wrote is text: in names, reasons and findings, in every view."""

import json
import re
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser.conftest import Open, Stand, show
from tests.web.made import name_of
from tests.web.stand import EVIL

pytestmark = pytest.mark.e2e

MARKUP = "<img src=x onerror=alert(1)><script>alert(2)</script>"
NAMES = (MARKUP, '"><svg onload=alert(3)>', "javascript:alert(4)", "../../etc/passwd", "a\u202eb", "x" * 253)
FOREIGN = "#view img, #view script, #view iframe, #toasts img, #banner img, dialog img"


def _nothing_but_text(page: Page) -> None:
    assert page.locator(FOREIGN).count() == 0
    assert not page.evaluate("[...document.links].filter(link => !/^https?:/.test(link.protocol)).length")


def test_a_reason_full_of_markup_is_shown_as_it_was_written(page: Page) -> None:
    for place in (f"#/host/{name_of(3)}", "#/queue", "#/audit", "#/fleet"):
        show(page, place)
        expect(page.locator("#view")).to_contain_text("<script>alert(1)</script><img src=x onerror=alert(2)>")
        _nothing_but_text(page)


def test_a_sign_that_turns_the_writing_round_is_shown_as_its_number(page: Page) -> None:
    assert "\u202e" in EVIL
    show(page, f"#/host/{name_of(3)}")
    assert "\u202e" not in page.locator("#view").inner_text()
    expect(page.locator(".standing .why")).to_contain_text("⟨U+202E⟩")


def test_a_refusal_full_of_markup_stays_text(page: Page) -> None:
    page.route(
        f"**/api/v1/hosts/{name_of(70)}/quarantine", lambda route: route.fulfill(status=409, json={"error": MARKUP})
    )
    show(page, f"#/host/{name_of(70)}")
    page.get_by_role("button", name="Quarantine").click()
    page.get_by_role("dialog").get_by_label("Reason").fill(MARKUP)
    page.get_by_role("dialog").get_by_role("button", name="Quarantine").click()
    expect(page.get_by_role("dialog").get_by_role("alert")).to_have_text(MARKUP)
    _nothing_but_text(page)


@pytest.mark.parametrize("name", NAMES)
def test_no_name_of_a_host_is_more_than_a_name(open_page: Open, stand: Stand, name: str) -> None:
    page = open_page("about:blank")

    def renamed(route: Route) -> None:
        answer = route.fetch()
        if answer.status != 200 or "event-stream" in answer.headers["content-type"]:
            route.fulfill(response=answer)
            return
        text = answer.text().replace(json.dumps(name_of(9)), json.dumps(name))
        route.fulfill(response=answer, body=text, headers={**answer.headers, "content-encoding": "identity"})

    page.route("**/api/v1/fleet/map", renamed)
    page.route("**/api/v1/hosts?*", renamed)
    page.goto(f"{stand.url}#/fleet?table=1")
    shown = name.replace("\u202e", "⟨U+202E⟩")
    page.get_by_label("Host", exact=True).fill(name[:20])
    link = page.locator("tbody a.host-name")
    expect(link).to_have_text(shown)
    _nothing_but_text(page)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    link.click()
    expect(page.locator("h1")).to_have_text(shown)
    expect(page.get_by_role("alert")).not_to_be_empty()
    known = re.compile(
        re.escape(f"{stand.url}api/v1/") + r"(hosts/[^/?#]+(/timeline|/telemetry)?|(hosts|facts|fleet)(\?.*)?)"
    )
    assert asked
    assert [url for url in asked if "/static/" not in url and not known.fullmatch(url)] == []
    _nothing_but_text(page)


@pytest.mark.parametrize(
    "place",
    [
        "#/nowhere",
        "#/host/",
        "#/host/%E0%A4%A",
        "#/fleet?state=%00&pool=none",
        "#/queue?after=zzz",
        "#//",
        "#/audit?before=x",
    ],
)
def test_an_address_that_means_nothing_breaks_nothing(open_page: Open, stand: Stand, place: str) -> None:
    page = open_page(f"{stand.url}{place}")
    expect(page.locator("h1")).to_be_visible()
    expect(page.locator("#live")).to_have_text("live")
    page.get_by_role("link", name="Policy").click()
    expect(page.locator("h1")).to_have_text("Policy")


def test_an_answer_that_is_no_json_is_a_clear_line(open_page: Open, stand: Stand) -> None:
    page = open_page("about:blank")
    broken: dict[str, Any] = {"status": 502, "content_type": "text/html", "body": MARKUP}
    page.route("**/api/v1/policy", lambda route: route.fulfill(**broken))
    page.goto(f"{stand.url}#/policy")
    expect(page.get_by_role("alert")).to_have_text("the controller answered 502")
    _nothing_but_text(page)
