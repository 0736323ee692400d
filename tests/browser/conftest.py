"""The page in a real Chromium, before a real controller with made hosts (`tests.web.stand`)."""

import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

ROOT = Path(__file__).parents[2]
SIZE = {"width": 1440, "height": 900}
BAD = re.compile(r"Content.Security.Policy|Uncaught")
CHROMIUM = shutil.which("chromium")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stand:
    """A controller with a page."""

    url: str
    process: subprocess.Popen[str]

    def get(self, path: str) -> Any:
        """What the API answers, seen by another client than the page."""
        return httpx.get(f"{self.url}api/v1{path}", timeout=20).raise_for_status().json()

    def post(self, path: str, **body: object) -> Any:
        """Change something behind the page's back."""
        return httpx.post(f"{self.url}api/v1{path}", json=body, timeout=20).raise_for_status().json()


@contextmanager
def standing(*options: str) -> Iterator[Stand]:
    """Run a stand until the block ends."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.web.stand", "--still", *options],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert url.startswith("http://"), f"the stand did not start: {url!r}"
        yield Stand(url=url, process=process)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.communicate(timeout=20)
        finally:
            process.kill()


@pytest.fixture(scope="session")
def stand() -> Iterator[Stand]:
    """A fleet of 200 hosts that all tests share: each changes hosts of its own."""
    with standing("--hosts", "200") as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium, for the tests of a file: as long as it is driven, nothing else can have an event loop."""
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed: `deploy/deps e2e` names what is missing")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


Open = Callable[..., Page]


@pytest.fixture(name="open_page")
def _open_page(browser: Browser) -> Iterator[Open]:
    """Open an address in a fresh profile; in the end no page may have thrown or broken its security policy."""
    watched: list[str] = []
    contexts = []

    def opened(url: str, *, scheme: Any = "light", **options: Any) -> Page:
        context = browser.new_context(viewport=SIZE, color_scheme=scheme, reduced_motion="reduce", **options)  # type: ignore[arg-type]
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(15_000)
        page.on("pageerror", lambda error: watched.append(f"exception: {error}"))
        page.on("console", lambda said: watched.append(said.text) if BAD.search(said.text) else None)
        page.on("dialog", lambda dialog: watched.append(f"a dialog: {dialog.message}"))
        page.goto(url)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not watched


@pytest.fixture(name="page")
def _page(open_page: Open, stand: Stand) -> Page:
    """The fleet view, drawn."""
    page = open_page(stand.url)
    page.locator("#map").wait_for()
    return page


def show(page: Page, place: str) -> None:
    """Go to a place of the page by its address, and wait until it is there."""
    page.evaluate("hash => { location.hash = hash; }", place)
    expect(page.locator("#view")).to_have_attribute("data-place", place)
    page.locator("#view .view, #view .map-box, #view .table-box").first.wait_for()
    expect(page.locator("#view .loading")).to_have_count(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """A file of tokens, and the tokens."""

    file: Path
    operator: str
    viewer: str


@pytest.fixture
def tokens(tmp_path: Path) -> Tokens:
    """An operator's token and a viewer's."""
    made = Tokens(file=tmp_path / "tokens", operator="fleetd_" + "o" * 43, viewer="fleetd_" + "v" * 43)
    lines = (("olga", "operator", made.operator), ("vera", "viewer", made.viewer))
    text = "".join(f"{name} {role} {sha256(token.encode()).hexdigest()}\n" for name, role, token in lines)
    made.file.touch(mode=0o600)
    made.file.write_text(text)
    return made
