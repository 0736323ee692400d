"""What holds for the page's files, without a browser."""

import re
from pathlib import Path

import pytest

import fleetd.web

STATIC = Path(fleetd.web.__file__).parent / "static"
FILES = sorted(STATIC.iterdir())
SCRIPTS = [path for path in FILES if path.suffix == ".js"]
LINES_MAX = 330
MARKUP_FROM_TEXT = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|\beval\(|new Function|setHTML"
)
INLINE = re.compile(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son[a-z]+=|javascript:", re.IGNORECASE)
ELSEWHERE = re.compile(r"""["'(=]\s*(?:https?:)?//(?!www\.w3\.org/2000/svg)""")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_file_fits_in_one_sitting_and_asks_nobody_else(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") <= LINES_MAX, "split it"
    assert not ELSEWHERE.search(text), "everything comes from the controller"
    assert max(map(len, text.split("\n"))) <= 120


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_a_module_says_what_it_is_and_makes_no_markup_of_text(path: Path) -> None:
    text = path.read_text()
    assert text.startswith("/**")
    code = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    assert not MARKUP_FROM_TEXT.search(code), "use h() of dom.js: a text is a text"


def test_the_page_has_nothing_that_its_security_policy_would_stop() -> None:
    assert not INLINE.search((STATIC / "index.html").read_text())


def test_every_file_is_named_where_the_page_begins_so_that_none_waits_for_another() -> None:
    named = set(re.findall(r'(?:href|src)="/static/([^"]+)"', (STATIC / "index.html").read_text()))
    assert named == {path.name for path in FILES} - {"index.html"}


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_a_module_imports_what_is_there_and_uses_it(path: Path) -> None:
    text = path.read_text()
    for names, source in re.findall(r'^import \{([^}]*)\} from "\./([^"]+)";', text, flags=re.MULTILINE):
        offered = (STATIC / source).read_text()
        for name in (part.strip() for part in names.split(",") if part.strip()):
            assert re.search(rf"^export (?:async )?(?:const|function|class) {name}\b", offered, flags=re.MULTILINE), (
                name
            )
            assert len(re.findall(rf"\b{name}\b", text)) > 1, f"{name} is imported and not used"


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_what_a_module_offers_is_used(path: Path) -> None:
    others = "\n".join(other.read_text() for other in SCRIPTS if other != path)
    for name in re.findall(r"^export (?:async )?(?:const|function|class) (\w+)", path.read_text(), flags=re.MULTILINE):
        assert re.search(rf"\b{name}\b", others), f"nobody imports {name}"
