"""No view has what axe-core finds, in light and in dark."""

from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from tests.browser.conftest import Open, Stand, show
from tests.web.made import name_of

pytestmark = pytest.mark.e2e

VIEWS = {
    "fleet": "#/fleet",
    "table": "#/fleet?table=1",
    "host": f"#/host/{name_of(1)}",
    "queue": "#/queue",
    "automation": "#/automation",
    "policy": "#/policy",
    "power": "#/power",
    "audit": "#/audit",
}


def _clean(page: Page) -> None:
    found: Any = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("view", VIEWS)
def test_a_view_is_clean(open_page: Open, stand: Stand, view: str, scheme: str) -> None:
    page = open_page(stand.url, scheme=scheme)
    page.locator("#map").wait_for()
    show(page, VIEWS[view])
    if view == "fleet":
        page.locator(".aside .feed").first.wait_for()
        page.locator("#map").focus()
    _clean(page)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_dialogs_are_clean_also_after_a_refusal(open_page: Open, stand: Stand, scheme: str) -> None:
    page = open_page(f"{stand.url}#/host/{name_of(1)}", scheme=scheme)
    page.get_by_role("button", name="Release").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Reason").fill("why not")
    dialog.get_by_role("button", name="Release").click()
    dialog.get_by_label("Override").wait_for()
    _clean(page)
    page.keyboard.press("Escape")
    page.locator("#help").click()
    page.get_by_role("dialog", name="Keyboard").wait_for()
    _clean(page)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_login_is_clean(open_page: Open, stand: Stand, scheme: str) -> None:
    page = open_page("about:blank", scheme=scheme)
    answer = {"status": 401, "json": {"error": "nobody is logged in"}}
    page.route("**/api/v1/**", lambda route: route.fulfill(**answer))
    page.goto(stand.url)
    page.get_by_label("Token").wait_for()
    _clean(page)
