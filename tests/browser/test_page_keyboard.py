"""The page by the keyboard alone."""

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Stand, show
from tests.web.made import name_of

pytestmark = pytest.mark.e2e


def _voice(page: Page) -> str:
    return page.locator(".map-box [role=status]").inner_text()


def still(page: Page) -> None:
    """Stop the page's time: two keys belong together for 1.5 s, which a busy machine may take between them."""
    page.clock.install()
    page.clock.pause_at(page.evaluate("Date.now()") / 1000 + 1)


def test_a_host_is_found_and_quarantined_without_a_mouse(page: Page, stand: Stand) -> None:
    name = name_of(60)
    keys = page.keyboard
    keys.press("/")
    keys.type(name)
    expect(page.locator(".fleet-main .note")).to_contain_text("1 of 200 hosts")
    for _ in range(40):
        if page.evaluate("document.activeElement.id") == "map":
            break
        keys.press("Tab")
    assert name in _voice(page)
    keys.press("Enter")
    expect(page.locator("h1")).to_have_text(name)
    expect(page.locator("h1")).to_be_focused()
    # The heading is there before the rest: a Tab before that leads out of the page.
    expect(page.get_by_role("button", name=f"Quarantine {name}")).to_be_visible()
    for _ in range(10):
        keys.press("Tab")
        if page.evaluate("document.activeElement.dataset.key") == f"quarantine:{name}":
            break
    keys.press("Enter")
    expect(page.get_by_role("dialog").get_by_label("Reason")).to_be_focused()
    keys.type("by the keyboard")
    keys.press("Tab")
    for _ in range(3):
        if page.evaluate("document.activeElement.type") == "submit":
            break
        keys.press("Tab")
    keys.press("Enter")
    expect(page.locator(".standing .badge")).to_have_text("quarantined")
    expect(page.get_by_role("button", name=f"Quarantine {name}")).to_be_focused()
    assert stand.get(f"/hosts/{name}")["host"]["holds"][0]["reason"] == "by the keyboard"


def test_arrows_move_over_the_map_and_say_where_they_are(page: Page) -> None:
    page.locator("#map").focus()
    said = {"start": _voice(page)}
    assert "quarantined" in said["start"] or "suspect" in said["start"]
    for key in ("Home", "ArrowRight", "ArrowDown", "ArrowLeft", "ArrowUp", "End"):
        page.keyboard.press(key)
        said[key] = _voice(page)
    assert len({said[key] for key in ("Home", "ArrowRight", "ArrowDown", "ArrowLeft", "End")}) == 5
    assert said["ArrowUp"] == said["Home"]
    page.keyboard.press("ArrowRight")
    assert _voice(page) == said["End"], "beyond the last host is none"


def test_arrows_pass_over_what_a_filter_leaves_out(page: Page) -> None:
    page.locator("[data-key=state-quarantined]").click()
    page.locator("#map").focus()
    for key in ("Home", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
        assert "quarantined" in _voice(page)


@pytest.mark.parametrize(
    ("keys", "title"),
    [("gq", "Quarantine queue"), ("gb", "Automation"), ("gp", "Policy"), ("gw", "Power"), ("ga", "Audit trail")],
)
def test_two_keys_lead_to_each_view_and_the_focus_goes_along(page: Page, keys: str, title: str) -> None:
    still(page)
    for key in keys:
        page.keyboard.press(key)
    expect(page.locator("h1")).to_have_text(title)
    expect(page.locator("h1")).to_be_focused()


def test_a_second_key_that_comes_late_leads_nowhere(page: Page) -> None:
    still(page)
    page.keyboard.press("g")
    page.clock.run_for(1501)
    page.keyboard.press("q")
    expect(page.locator("h1")).to_have_text("Fleet")


def test_the_keys_are_told_and_can_be_switched_off(page: Page) -> None:
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keyboard")
    expect(dialog).to_contain_text("quarantine queue")
    dialog.get_by_label("Single keys are on").uncheck()
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    still(page)
    page.keyboard.press("g")
    page.keyboard.press("q")
    expect(page.locator("h1")).to_have_text("Fleet")


def test_keys_that_are_typed_into_a_field_go_nowhere(page: Page) -> None:
    page.get_by_label("Host", exact=True).focus()
    page.keyboard.type("gq?")
    expect(page.locator("h1")).to_have_text("Fleet")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_a_dialog_keeps_the_focus_and_gives_it_back(page: Page) -> None:
    name = name_of(61)
    show(page, f"#/host/{name}")
    page.get_by_role("button", name=f"Retire {name}").press("Enter")
    for _ in range(12):
        inside = "document.activeElement === document.body || document.activeElement.closest('dialog') !== null"
        assert page.evaluate(inside)
        page.keyboard.press("Tab")
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name=f"Retire {name}")).to_be_focused()


def test_the_skip_link_comes_first_and_leads_past_the_top(page: Page) -> None:
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#view")).to_be_focused()
    expect(page.locator("h1")).to_have_text("Fleet")
