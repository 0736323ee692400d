"""Building HTML and SVG in which nothing that came from outside is ever taken for markup. Torch-free.

Every text becomes markup in one place, `tag`, which escapes it; what a driver, a library or a hostile name put into it
shows as text. The page loads nothing, and has no script.
"""

from collections.abc import Iterable, Sequence
from html import escape

REPLACED = "\N{REPLACEMENT CHARACTER}"
ROOM = "\n\t\N{NO-BREAK SPACE}"
"""White space that may stand in a text."""


class Markup(str):
    """Markup of our own, which is not escaped again."""

    __slots__ = ()


def plain(text: str) -> str:
    """The text with everything replaced that cannot be shown: control characters, reversed writing, half characters.

    XML and UTF-8 refuse some of them, and the others can make a line read as another one.
    """
    return "".join(one if one.isprintable() or one in ROOM else REPLACED for one in text)


def tag(name: str, /, *children: str, **attributes: str | float | None) -> Markup:
    """An element: texts among its children are escaped, and so are its attributes; None leaves an attribute out.

    In the names of attributes a final `_` is dropped, and others are hyphens: `class_`, `aria_label`.
    """
    given = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items() if value is not None}
    words = "".join(f' {key}="{_text(value)}"' for key, value in given.items())
    if name in {"meta", "rect", "line", "circle", "col"} and not children:
        return Markup(f"<{name}{words}/>")
    return Markup(f"<{name}{words}>{join(children)}</{name}>")


def _text(value: str | float) -> str:
    return escape(plain(value)) if isinstance(value, str) else f"{value:.6g}"


def join(children: Iterable[str]) -> Markup:
    """Children side by side."""
    return Markup("".join(child if isinstance(child, Markup) else escape(plain(child)) for child in children))


def table(caption: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> Markup:
    """A table whose first column names its rows; a narrow screen scrolls it, also by the keyboard."""
    head = tag("thead", tag("tr", *(tag("th", name, scope="col") for name in header)))
    body = tag(
        "tbody",
        *(tag("tr", tag("th", row[0], scope="row"), *(tag("td", cell) for cell in row[1:])) for row in rows),
    )
    inner = tag("table", tag("caption", caption), head, body)
    return tag("div", inner, class_="wide", role="region", aria_label=caption, tabindex="0")


def listed(lines: Sequence[str], *, ordered: bool = False) -> Markup:
    """A list; nothing where there are no lines."""
    return tag("ol" if ordered else "ul", *(tag("li", line) for line in lines)) if lines else Markup("")


def section(name: str, title: str, *children: str) -> Markup:
    """A part of the page with its heading; nothing where there is nothing in it."""
    inner = join(children)
    return tag("section", tag("h2", title, id=name), inner, aria_labelledby=name) if inner else Markup("")


STYLE = """
:root{color-scheme:light dark;--fg:#1b1b1f;--bg:#fff;--soft:#5a5a66;--line:#d5d5dc;--box:#f4f4f7;--good:#0b6b2e;
--bad:#a30f1c;--open:#7a4b00;--mark:#c2202e;--base:#8a8a99;--blue:#2456a8}
@media (prefers-color-scheme:dark){:root{--fg:#e6e6ea;--bg:#16181d;--soft:#a9a9b6;--line:#3a3d47;--box:#20232b;
--good:#6fd08c;--bad:#ff8f94;--open:#f0c060;--mark:#ff6b73;--base:#7d8090;--blue:#8ab4ff}}
*{box-sizing:border-box}
body{font:15px/1.5 system-ui,"Segoe UI",sans-serif;max-width:76rem;margin:0 auto;padding:1.5rem 1rem 3rem;
color:var(--fg);background:var(--bg)}
h1{font-size:1.5rem;line-height:1.25;margin:0 0 .5rem;overflow-wrap:anywhere}
h2{font-size:1.15rem;margin:2.2rem 0 .6rem}
h3{font-size:1rem;margin:1.4rem 0 .3rem}p{margin:.4rem 0;max-width:60rem;overflow-wrap:anywhere}
table{border-collapse:collapse;width:100%;font-size:14px}caption{text-align:left;color:var(--soft);padding:.2rem 0}
th,td{text-align:left;padding:.35rem .7rem .35rem 0;border-bottom:1px solid var(--line);vertical-align:top}
thead th{color:var(--soft);font-weight:600}tbody th{font-weight:600}td,th{overflow-wrap:break-word}
td:last-child{min-width:11rem}
.wide{overflow-x:auto}details{margin:.6rem 0}summary{cursor:pointer;color:var(--blue)}
pre{background:var(--box);border:1px solid var(--line);border-radius:4px;
padding:.6rem .8rem;overflow-x:auto;margin:.4rem 0}
code,pre{font:13px/1.45 ui-monospace,"DejaVu Sans Mono",monospace}
pre{white-space:pre-wrap;overflow-wrap:anywhere;user-select:all}
.pass,.fail,.not_judged{font-weight:700;white-space:nowrap}
.pass{color:var(--good)}.fail{color:var(--bad)}.not_judged{color:var(--open)}
.top{border-left:6px solid;padding:.2rem 0 .2rem 1rem}
.top.pass,.top.fail,.top.not_judged{white-space:normal;font-weight:400}
.top p,.top h1,.top dl{color:var(--fg)}
dl{display:grid;grid-template-columns:repeat(auto-fill,minmax(13rem,1fr));gap:.5rem 1rem;margin:1rem 0 0}
dt{color:var(--soft);font-size:13px}dd{margin:0;overflow-wrap:anywhere}
.warn{border:2px solid var(--open);padding:.5rem .8rem;border-radius:4px;font-weight:600}
.pictures{display:flex;flex-wrap:wrap;gap:1rem 2rem;margin:.4rem 0}figure{margin:0;max-width:100%}
figcaption{color:var(--soft);font-size:13px;max-width:26rem}.whole figcaption{max-width:46rem}
svg .dots{stroke:var(--mark);stroke-width:2;stroke-linecap:round;fill:none}
svg{display:block;max-width:100%;height:auto}svg text{font:11px system-ui,sans-serif;fill:var(--fg)}
svg .soft{fill:var(--soft)}svg .box{fill:var(--box);stroke:var(--line)}svg .base{fill:var(--base)}
svg .mark{fill:var(--mark)}svg .good{fill:var(--good)}svg .blue{fill:var(--blue)}svg .rule{stroke:var(--fg)}
svg .goal{stroke:var(--blue);stroke-width:2}svg .zone{fill:var(--mark);opacity:.15}
footer{margin-top:3rem;color:var(--soft);font-size:13px}
@media print{body{max-width:none;padding:0;font-size:11px}table,pre,code{font-size:10px}section{break-inside:auto}
h2,h3{break-after:avoid}tr,figure,pre{break-inside:avoid}.wide{overflow:visible}}
"""
"""Light and dark by the reader's setting; text has a contrast of 4.5 : 1 or more on its ground in both."""
