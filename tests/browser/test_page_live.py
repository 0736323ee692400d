"""What happens elsewhere appears by itself; what cannot be known is said."""

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Open, Stand, show, standing
from tests.web.made import name_of

pytestmark = pytest.mark.e2e


def _number(page: Page, state: str) -> int:
    return int(page.locator(f"[data-key=state-{state}] .number").inner_text())


def test_a_quarantine_elsewhere_appears_on_the_map_and_is_read_out(page: Page, stand: Stand) -> None:
    expect(page.locator("#live")).to_have_text("live")
    before = _number(page, "quarantined")
    stand.post(f"/hosts/{name_of(50)}/quarantine", reason="by another person")
    expect(page.locator("[data-key=state-quarantined] .number")).to_have_text(str(before + 1))
    expect(page.locator("#voice")).to_contain_text(f"{name_of(50)} quarantined")
    expect(page.locator(".aside")).to_contain_text("by another person")


def test_a_host_page_follows_its_host_and_keeps_the_focus(page: Page, stand: Stand) -> None:
    name = name_of(51)
    show(page, f"#/host/{name}")
    button = page.get_by_role("button", name=f"Burn-in {name}")
    button.focus()
    stand.post(f"/hosts/{name}/quarantine", reason="while somebody looks at it")
    expect(page.locator(".standing .badge")).to_have_text("quarantined")
    expect(page.locator(".timeline li").first).to_contain_text("while somebody looks at it")
    expect(page.get_by_role("button", name=f"Burn-in {name}")).to_be_focused()


def test_a_host_page_leaves_other_hosts_alone(open_page: Open, stand: Stand) -> None:
    name, other = name_of(52), name_of(53)
    page = open_page("about:blank")
    page.clock.install()  # else it asks for its host every 10 s
    page.goto(f"{stand.url}#/host/{name}")
    expect(page.locator(".standing")).to_be_visible()
    expect(page.locator("#live")).to_have_text("live")
    before = page.locator("#queue-size").inner_text()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    stand.post(f"/hosts/{other}/quarantine", reason="another host")
    size = page.locator("#queue-size")
    expect(size).not_to_have_text(before)
    page.clock.run_for(5_000)
    expect(page.locator("#voice")).to_contain_text(f"{other} quarantined")
    assert [url for url in asked if name in url] == []


def test_the_queue_grows_by_itself(page: Page, stand: Stand) -> None:
    show(page, "#/queue")
    stand.post(f"/hosts/{name_of(54)}/quarantine", reason="a new entry")
    expect(page.locator(".queue-entry", has_text=name_of(54))).to_contain_text("a new entry")


def test_what_is_being_typed_stays_while_the_view_changes(page: Page, stand: Stand) -> None:
    show(page, "#/audit")
    page.get_by_label("Who").fill("somebody")
    page.keyboard.press("Home")
    stand.post(f"/hosts/{name_of(56)}/quarantine", reason="while somebody types")
    expect(page.locator("tbody tr").first).to_contain_text("while somebody types")
    page.keyboard.type("not-")
    expect(page.get_by_label("Who")).to_have_value("not-somebody")


def test_a_page_that_nobody_sees_gives_its_stream_up_and_catches_up_later(page: Page, stand: Stand) -> None:
    expect(page.locator("#live")).to_have_text("live")
    hide = """hidden => {
      Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
      document.dispatchEvent(new Event("visibilitychange"));
    }"""
    with page.expect_event("requestfailed", lambda request: request.url.endswith("/events")):
        page.evaluate(hide, arg=True)
    before = _number(page, "quarantined")
    stand.post(f"/hosts/{name_of(57)}/quarantine", reason="while nobody looks")
    page.evaluate(hide, arg=False)
    expect(page.locator("[data-key=state-quarantined] .number")).to_have_text(str(before + 1))


def test_a_controller_that_comes_back_is_followed_again(open_page: Open) -> None:
    with standing("--hosts", "20") as first:
        page = open_page(first.url)
        expect(page.locator("#live")).to_have_text("live")
        port = first.url.rsplit(":", 1)[1].strip("/")
    expect(page.locator("#live")).not_to_have_text("live")
    expect(page.locator("#map")).to_be_visible()
    with standing("--hosts", "20", "--port", port) as second:
        expect(page.locator("#live")).to_have_text("live", timeout=15_000)
        second.post(f"/hosts/{name_of(12)}/quarantine", reason="after the restart")
        expect(page.locator("#voice")).to_contain_text(f"{name_of(12)} quarantined", timeout=15_000)


def test_without_a_stream_the_page_asks_now_and_then(open_page: Open, stand: Stand) -> None:
    page = open_page("about:blank")
    page.route("**/api/v1/events", lambda route: route.abort())
    page.clock.install()
    page.goto(stand.url)
    page.locator("#map").wait_for()
    expect(page.locator("#live")).to_have_text("polling every 10 s")
    before = _number(page, "quarantined")
    stand.post(f"/hosts/{name_of(55)}/quarantine", reason="nobody told the page")
    page.clock.run_for(11_000)
    expect(page.locator("[data-key=state-quarantined] .number")).to_have_text(str(before + 1))
