"""The page of a site in a real Chromium. While it is open, nothing else in this thread may have an event loop."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, expect, sync_playwright

from tests.browser.conftest import BAD, CHROMIUM, SIZE, show

SLOW_MS = 120_000.0
"""Patience with a browser on a busy machine; never a judgement."""


@contextmanager
def page_of(url: str, token: str) -> Iterator[Page]:
    """A fresh profile, logged in by a token; in the end nothing may have thrown or broken its security policy."""
    assert CHROMIUM, "Chromium is not installed: `deploy/deps e2e` names what is missing"
    watched: list[str] = []
    expect.set_options(timeout=SLOW_MS)
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"], timeout=SLOW_MS)
            # The authority is the site's own; a browser of theirs knows it, this one does not.
            context = browser.new_context(viewport=SIZE, reduced_motion="reduce", ignore_https_errors=True)  # type: ignore[arg-type]
            page = context.new_page()
            page.set_default_timeout(SLOW_MS)
            page.on("pageerror", lambda error: watched.append(f"exception: {error}"))
            page.on("console", lambda said: watched.append(said.text) if BAD.search(said.text) else None)
            page.goto(url)
            page.get_by_label("Token").fill(token)
            page.get_by_role("button", name="Log in").click()
            page.locator("#map").wait_for()
            yield page
            browser.close()
    finally:
        expect.set_options(timeout=5_000)
    assert not watched


def looks_at_a_bad_day(page: Page, *, bad: dict[str, str], dark: tuple[str, ...], folder: Path) -> list[Path]:
    """See on the page what befell the site; leaves pictures of it.

    Args:
        page: the fleet view.
        bad: host that is held → what its page says of the reason.
        dark: hosts of the one incident.
        folder: for the pictures.
    """
    expect(page.locator("[data-key=state-quarantined] .number")).to_have_text(str(len(bad)))
    expect(page.locator("#banner")).to_contain_text("1 open incident")
    pictures = [_picture(page, folder, "fleet")]
    show(page, "#/automation")
    incident = page.locator(".incident")
    expect(incident).to_have_count(1)
    for host in dark:
        expect(incident).to_contain_text(host)
    show(page, "#/queue")
    for host, said in bad.items():
        show(page, f"#/host/{host}")
        expect(page.locator(".standing .badge")).to_have_text("quarantined")
        expect(page.locator("#view")).to_contain_text(said)
        pictures.append(_picture(page, folder, host))
    return pictures


def _picture(page: Page, folder: Path, name: str) -> Path:
    path = folder / f"{name}.png"
    page.screenshot(path=path)
    return path
