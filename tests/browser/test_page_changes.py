"""Changes by the page: each with a reason, each answered by the controller, word by word."""

import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser.conftest import Open, Stand, Tokens, show, standing
from tests.web.made import name_of

pytestmark = pytest.mark.e2e


def test_a_host_is_quarantined_with_a_reason(page: Page, stand: Stand) -> None:
    name = name_of(30)
    show(page, f"#/host/{name}")
    page.get_by_role("button", name=f"Quarantine {name}").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Reason").fill("smells of smoke <b>badly</b>")
    dialog.get_by_label("Its work leaves").select_option("checkpoint")
    dialog.get_by_role("button", name="Quarantine").click()
    expect(page.locator(".standing .badge")).to_have_text("quarantined")
    expect(page.locator(".standing .why")).to_contain_text("smells of smoke <b>badly</b>")
    expect(page.locator(".card.hold")).to_contain_text("Held by operator:unauthenticated")
    expect(dialog).to_have_count(0)
    host = stand.get(f"/hosts/{name}")["host"]
    assert host["state"] == "quarantined"
    assert host["holds"][0]["reason"] == "smells of smoke <b>badly</b>"
    orders = [order for entry in stand.get(f"/hosts/{name}/timeline")["entries"] for order in entry["orders"]]
    assert [order["drain"] for order in orders] == ["checkpoint"]


def test_nothing_is_sent_without_a_reason(page: Page, stand: Stand) -> None:
    name = name_of(31)
    show(page, f"#/host/{name}")
    page.get_by_role("button", name=f"Quarantine {name}").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Reason").fill("   ")
    dialog.get_by_role("button", name="Quarantine").click()
    expect(dialog.get_by_role("alert")).to_contain_text("a change needs a reason")
    dialog.get_by_role("button", name="Cancel").click()
    assert stand.get(f"/hosts/{name}")["host"]["state"] == "healthy"


def test_a_release_without_proof_is_refused_and_the_page_says_why(page: Page, stand: Stand) -> None:
    name = name_of(1)
    show(page, f"#/host/{name}")
    expect(page.locator(".way li.open")).to_contain_text("a passing smoke burn-in")
    page.get_by_role("button", name=f"Release {name}").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Override")).to_have_count(0)
    dialog.get_by_label("Reason").fill("it looks fine")
    dialog.get_by_role("button", name="Release").click()
    expect(dialog.get_by_role("alert")).to_contain_text("not released: a passing smoke burn-in of this boot")
    expect(dialog.get_by_label("Override")).not_to_be_checked()
    dialog.get_by_role("button", name="Cancel").click()
    expect(page.locator(".timeline li").first).to_contain_text("it looks fine")
    host = stand.get(f"/hosts/{name}")["host"]
    assert host["state"] == "quarantined"
    assert host["holds"]


def test_after_a_refusal_an_override_is_offered_and_told_in_the_timeline(page: Page, stand: Stand) -> None:
    name = name_of(2)
    show(page, "#/queue")
    page.get_by_role("button", name=f"Release {name}").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Reason").fill("the vendor says it is a known false alarm")
    dialog.get_by_role("button", name="Release").click()
    dialog.get_by_label("Override").check()
    dialog.get_by_role("button", name="Release").click()
    expect(dialog).to_have_count(0)
    expect(page.locator("#toasts")).to_contain_text(f"{name}: release")
    assert stand.get(f"/hosts/{name}")["host"]["holds"] == []
    show(page, f"#/host/{name}")
    expect(page.locator(".timeline li").first).to_contain_text("overriding")


def test_who_releases_what_has_changed_meanwhile_is_told_to_look_again(page: Page, stand: Stand) -> None:
    name = name_of(33)
    stand.post(f"/hosts/{name}/quarantine", reason="first")
    show(page, f"#/host/{name}")
    expect(page.locator(".standing .badge")).to_have_text("quarantined")
    page.get_by_role("button", name=f"Release {name}").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Reason").fill("the first trouble is over")
    stand.post(f"/hosts/{name}/quarantine", reason="second")
    dialog.get_by_role("button", name="Release").click()
    expect(dialog.get_by_role("alert")).to_contain_text("has changed since you looked")
    expect(dialog.get_by_label("Override")).to_have_count(0)
    assert stand.get(f"/hosts/{name}")["host"]["state"] == "quarantined"
    dialog.get_by_role("button", name="Cancel").click()
    expect(page.locator("#view")).to_contain_text("second")
    page.get_by_role("button", name=f"Release {name}").click()
    dialog.get_by_label("Reason").fill("both are over")
    dialog.get_by_role("button", name="Release").click()
    expect(dialog).to_have_count(0)
    assert stand.get(f"/hosts/{name}")["host"]["holds"] == []


def test_the_kill_switch_stands_above_every_view(page: Page, stand: Stand) -> None:
    show(page, "#/automation")
    page.get_by_role("button", name="Stop automation").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Reason").fill("switch maintenance in hall 2")
    dialog.get_by_role("button", name="Stop automation").click()
    expect(page.locator("#banner")).to_contain_text("Automation is stopped")
    show(page, "#/fleet")
    expect(page.locator("#banner")).to_contain_text("switch maintenance in hall 2")
    show(page, "#/automation")
    page.get_by_role("button", name="Resume automation").click()
    dialog.get_by_label("Reason").fill("done")
    dialog.get_by_role("button", name="Resume automation").click()
    expect(page.locator("#banner .stop")).to_have_count(0)
    assert stand.get("/fleet")["stopped"] is None


def test_an_incident_is_closed(page: Page, stand: Stand) -> None:
    show(page, "#/automation")
    (incident,) = stand.get("/fleet")["incidents"]
    page.get_by_role("button", name=f"Close incident {incident['id']}").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Reason").fill("a bad driver, rolled back")
    dialog.get_by_label("Acquit").check()
    dialog.get_by_role("button", name="Close incident").click()
    expect(page.get_by_text("No incident is open.")).to_be_visible()
    assert stand.get("/fleet")["incidents"] == []


def test_a_dialog_stays_while_the_controller_is_away(open_page: Open) -> None:
    with standing("--hosts", "20") as own:
        page = open_page(own.url)
        show(page, f"#/host/{name_of(12)}")
        page.get_by_role("button", name="Quarantine").click()
        page.get_by_role("dialog").get_by_label("Reason").fill("a reason that must not be lost")
        own.process.terminate()
        own.process.wait(timeout=20)
        page.get_by_role("dialog").get_by_role("button", name="Quarantine").click()
        expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("cannot be reached")
        expect(page.get_by_role("dialog").get_by_label("Reason")).to_have_value("a reason that must not be lost")


def test_a_viewer_sees_the_buttons_and_why_they_do_nothing(open_page: Open, tokens: Tokens) -> None:
    with standing("--hosts", "20", "--tokens", str(tokens.file)) as own:
        page = open_page(own.url)
        page.get_by_label("Token").fill("fleetd_wrong")
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("alert")).to_contain_text("this token is not known")
        page.get_by_label("Token").fill(tokens.viewer)
        page.get_by_role("button", name="Log in").click()
        page.locator("#map").wait_for()
        expect(page.locator("#who")).to_contain_text("vera · viewer")
        show(page, f"#/host/{name_of(12)}")
        page.get_by_role("button", name="Quarantine").click(force=True)  # Playwright would wait until it is enabled
        expect(page.get_by_role("dialog")).to_have_count(0)
        expect(page.locator("#toasts")).to_contain_text("only an operator may")


def test_a_session_ends_with_log_out_and_leaves_nothing_on_the_page(open_page: Open, tokens: Tokens) -> None:
    with standing("--hosts", "20", "--tokens", str(tokens.file)) as own:
        page = open_page(own.url)
        page.get_by_label("Token").fill(tokens.operator)
        page.keyboard.press("Enter")
        page.locator("#map").wait_for()
        show(page, f"#/host/{name_of(12)}")
        page.get_by_role("button", name="Quarantine").click()
        page.get_by_role("dialog").get_by_label("Reason").fill("by a session with its secret")
        page.get_by_role("dialog").get_by_role("button", name="Quarantine").click()
        expect(page.locator(".standing .badge")).to_have_text("quarantined")
        page.reload()
        expect(page.locator("#who")).to_contain_text("olga · operator")
        page.get_by_role("button", name="Log out").click()
        expect(page.get_by_label("Token")).to_be_visible()
        assert name_of(12) not in page.locator("main").inner_text()
        assert page.evaluate("Object.keys(localStorage).length + Object.keys(sessionStorage).length") == 0


def test_a_login_form_stays_when_further_requests_are_refused(open_page: Open, stand: Stand) -> None:
    page = open_page("about:blank")
    late: list[Route] = []
    page.route("**/api/v1/session", lambda route: route.fulfill(status=401, json={"error": "nobody is logged in"}))
    page.route("**/api/v1/fleet/map", lambda route: late.append(route))  # noqa: PLW0108 - Playwright takes no built-in
    page.goto(stand.url)
    page.get_by_label("Token").fill("typed before the second answer came")
    with page.expect_response("**/api/v1/fleet/map"):
        for route in late:
            route.fulfill(status=401, json={"error": "nobody is logged in"})
    expect(page.get_by_label("Token")).to_have_value("typed before the second answer came")
