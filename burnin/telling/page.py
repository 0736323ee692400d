"""The report as one self-contained HTML page: the verdict first, then who, what, how to see it again, what to do."""

from html import escape
from typing import Any

from burnin.spec import FaultClass
from burnin.telling.report import NEXT

_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:72rem;margin:2rem auto;padding:0 1rem;color:#1a1a1a;background:#fff}
h1{font-size:1.5rem}h2{font-size:1.1rem;margin-top:2rem}table{border-collapse:collapse;width:100%}
th,td{text-align:left;padding:.35rem .6rem;border-bottom:1px solid #ddd;vertical-align:top}
code{font:13px ui-monospace,monospace;overflow-wrap:anywhere}.pass{color:#136f2d}.fail{color:#a8071a}
.not_judged{color:#8a5a00}.pass,.fail,.not_judged{font-weight:600}
"""


def to_html(report: dict[str, Any]) -> str:
    """The page; every value is escaped, nothing is loaded from elsewhere."""
    title = f"Burn-in of {report['host']}: {report['verdict']}"
    about = (
        f"Level {report['level']} on {report['backend']}, seed {report['seed']}, {report['elapsed_s']:.1f} s, "
        f"vote key {report['vote_key']}"
    )
    parts = [
        f"<h1>Burn-in of {escape(report['host'])}: {_verdict(report['verdict'])}</h1>",
        f"<p>{escape(report['why'])}</p><p>{escape(about)}</p>",
        _todo(report),
        "<h2>GPUs</h2>",
        _table(
            ("GPU", "id", "verdict", "class", "strikes", "why"),
            [
                [str(g["index"]), g["gpu"], _Raw(_verdict(g["verdict"])), g["class"], str(g["strikes"]), g["why"]]
                for g in report["gpus"]
            ],
        ),
        "<h2>Tests</h2>",
        _table(
            ("test", "verdict", "launches", "bytes checked", "seconds", "mean rate of one GPU", "why"),
            [_test(test) for test in report["tests"]]
            + [[one["id"], "not run", "", "", "", "", one["why"]] for one in report["not_run"]],
        ),
        _felt_by(report),
        _signatures(report),
        _list("Planted faults", [_injected(one) for one in report["injected"]]),
        _list("Notes", [*report["notes"], *(f"GPU {d['index']}, {d['test']}: {d['why']}" for d in report["deaths"])]),
        _list("Versions", [f"{name} {version}" for name, version in report["versions"].items()]),
    ]
    head = f"<meta charset='utf-8'><meta name='viewport' content='width=device-width'><title>{escape(title)}</title>"
    head += f"<style>{_STYLE}</style>"
    return f"<!doctype html><html lang='en'><head>{head}</head><body>{''.join(parts)}</body></html>\n"


class _Raw(str):
    """Markup of our own, which is not escaped again."""

    __slots__ = ()


def _verdict(verdict: str) -> str:
    return f"<span class='{escape(verdict)}'>{escape(verdict.replace('_', ' '))}</span>"


def _table(header: tuple[str, ...], rows: list[list[str]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    cells = ("".join(f"<td>{c if isinstance(c, _Raw) else escape(c)}</td>" for c in row) for row in rows)
    return f"<table><tr>{head}</tr>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>"


def _list(title: str, lines: list[str]) -> str:
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<h2>{escape(title)}</h2><ul>{items}</ul>" if lines else ""


def _todo(report: dict[str, Any]) -> str:
    lines = [
        f"GPU {one['index']} ({one['gpu']}), {one['class']}: {NEXT[FaultClass(one['class'])]}"
        for one in report["culprits"]
        if FaultClass(one["class"]) in NEXT
    ]
    if report["verdict"] == "not_judged":
        lines.append("nothing was decided: remove the reason above and run again; do not take the host for good or bad")
    elif report["verdict"] == "fail" and not lines:
        lines.append("no GPU is blamed: look at the software, the configuration or the host named above")
    return _list("What to do next", lines)


def _test(test: dict[str, Any]) -> list[str]:
    rates = ", ".join(f"{name} {rate:.3g}" for name, rate in test["rates"].items())
    verdict = _Raw(_verdict(test["verdict"]))
    work = [f"{test['launches']:,}", f"{test['bytes']:,}", f"{test['elapsed_s']:.1f}"]
    return [test["id"], verdict, *work, rates, test["why"]]


def _felt_by(report: dict[str, Any]) -> str:
    """What every GPU felt in every test; nothing where no GPU has sensors."""
    rows = []
    for test in report["tests"]:
        felt = {gpu["index"]: _felt(gpu) for gpu in test["gpus"]}
        if any(felt.values()):
            rows.append([test["id"], *(felt.get(gpu["index"], "") for gpu in report["gpus"])])
    header = ("test", *(f"GPU {gpu['index']}" for gpu in report["gpus"]))
    return f"<h2>Felt (mean power, highest temperature, mean clock)</h2>{_table(header, rows)}" if rows else ""


def _signatures(report: dict[str, Any]) -> str:
    if not report["signatures"]:
        return ""
    rows = []
    for one in report["signatures"]:
        where = f"{one['tiles_total']} tiles: {', '.join(map(str, one['tiles']))}" if one["tiles"] else ""
        where += f" first in {one['op']}" if one["op"] else ""
        where += _elements(one["elements"])
        felt = _felt(one)
        wrong = f"{one['count']} of {one['launches']}"
        what = f"{one['test']}: {one['case']}"
        rows.append([str(one["index"]), what, str(one["seed"]), wrong, where, felt, one["why"]])
    header = ("GPU", "test and case", "seed", "wrong launches", "where", "felt", "why")
    shown = f"{len(rows)} of {report['signatures_total']}"
    again = f"<p>See it again: <code>{escape(report['signatures'][0]['reproduce'])}</code></p>"
    return f"<h2>Signatures ({shown})</h2>{_table(header, rows)}{again}"


def _felt(one: dict[str, Any]) -> str:
    """What a GPU felt, in words: mean power, highest temperature, mean clock."""
    parts = []
    for name, part, scale, unit in (
        ("power_watts", "mean", 1.0, "W"),
        ("temperature_celsius", "max", 1.0, "°C"),
        ("sm_clock_hertz", "mean", 1e6, "MHz"),
    ):
        if one[name] is not None:
            parts.append(f"{one[name][part] / scale:.0f} {unit}")
    return " ".join(parts)


def _elements(found: dict[str, Any] | None) -> str:
    """The wrong elements of a signature in words."""
    if found is None:
        return ""
    bits = ", ".join(f"bit {bit} in {times:,}" for bit, times in found["bits"].items())
    period = f", every {found['period']:,}th at most" if (found["period"] or 1) > 1 else ""
    row, column = found["first"]
    return f"; {found['count']:,} of {found['compared']:,} elements, first [{row}, {column}]{period}: {bits}"


def _injected(one: dict[str, Any]) -> str:
    found = "found" if one["found"] else "not found"
    return f"{one['fault']} on GPU {one['index']} at rate {one['rate']}: changed {one['fired']} launches, {found}"
