"""The report as one HTML page that needs nothing else: its style and its pictures (SVG) are inside."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape

from fleetd.cli.report_words import columns, heading
from fleetd.core.sums import DEFINITIONS, DIVISIONS, Day, Division, Report, Sums, rates

_WIDTH, _HEIGHT = 900, 160
_STYLE = """
body{font:15px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem;color:#1b1f24;background:#fff}
h1{font-size:1.5rem}h2{font-size:1.1rem;margin-top:2rem}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{padding:.3rem .5rem;border-bottom:1px solid #d5d9de;text-align:right;white-space:nowrap}
th:first-child,td:first-child{text-align:left}tr.all{font-weight:600}
.wide{overflow-x:auto}figure{margin:1rem 0}figcaption{color:#57606a}svg{max-width:100%;height:auto}
dt{font-weight:600}dd{margin:0 0 .5rem 0;color:#3b434b}
.bad{fill:#b3261e}.good{fill:#1a6f5c}.line{stroke:#57606a;stroke-width:1}
text{font:12px system-ui,sans-serif;fill:#3b434b}
@media (prefers-color-scheme:dark){body{color:#e6e8ea;background:#14171a}text{fill:#b9c0c7}dd,figcaption{color:#b9c0c7}
th,td{border-color:#333a41}.bad{fill:#ff8a80}.good{fill:#5cc9ad}}
"""


def page(found: Report, *, by: Division, objective: float) -> str:
    """The whole page.

    Args:
        found: the report.
        by: what the first table and the picture are by; the other divisions follow.
        objective: false quarantines that are acceptable, per 10,000 host days.
    """
    parts = [f"<p>{escape(line)}</p>" for line in heading(found, objective)]
    divisions: list[Division] = [by, *(division for division in DIVISIONS if division != by)]
    parts.append(_by_day(found.days))
    parts.append(_bars(found.by(by), by))
    parts += [f"<h2>By {division}</h2>{_table(found, division)}" for division in divisions]
    parts.append(f"<h2>Times from leaving service to coming back</h2>{_times(found.whole.return_seconds)}")
    terms = "".join(f"<dt>{escape(name)}</dt><dd>{escape(said)}</dd>" for name, said in DEFINITIONS.items())
    parts.append(f"<h2>What is counted</h2><dl>{terms}</dl>")
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>Fleet report</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head>'
        f"<body><h1>Fleet report</h1>{''.join(parts)}</body></html>\n"
    )


def _table(found: Report, division: Division) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in (division, *(name for name, _ in columns(Sums()))))
    rows = [(name or "(not known)", "", sums) for name, sums in found.by(division)]
    body = "".join(
        f'<tr class="{kind}"><td>{escape(name)}</td>{"".join(f"<td>{escape(v)}</td>" for _, v in columns(sums))}</tr>'
        for name, kind, sums in (*rows, ("all", "all", found.whole))
    )
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _by_day(days: Sequence[Day]) -> str:
    """Share of the fleet that was out of service unplanned, day by day."""
    ratios = [day.unplanned_seconds / day.host_seconds if day.host_seconds else 0.0 for day in days]
    top = max((*ratios, 0.001))
    step = _WIDTH / max(len(days), 1)
    bars = [
        f'<rect class="bad" x="{n * step:.1f}" y="{20 + (1 - ratio / top) * _HEIGHT:.1f}" '
        f'width="{max(step - 1, 0.5):.1f}" height="{ratio / top * _HEIGHT:.1f}"><title>{_date(day.at_s)}: '
        f"{100 * ratio:.2f} % out, {day.quarantines} quarantines</title></rect>"
        for n, (day, ratio) in enumerate(zip(days, ratios, strict=True))
    ]
    ends = f"{_date(days[0].at_s)} … {_date(days[-1].at_s)}" if days else ""
    return _figure(bars, top, "Share of the host time out of service unplanned, by day", ends)


def _bars(groups: Iterable[tuple[str | None, Sums]], division: Division) -> str:
    """The share that served users, was out unplanned, and planned, for each group."""
    rows = []
    shown = [(name, sums) for name, sums in groups if sums.host_seconds]
    for n, (name, sums) in enumerate(shown[:40]):
        r = rates(sums)
        good, bad = (r.availability_ratio or 0.0) * 600, (r.unplanned_ratio or 0.0) * 600
        y = 24 * n
        rows.append(
            f'<text x="0" y="{y + 15}">{escape((name or "(not known)")[:30])}</text>'
            f'<rect class="good" x="220" y="{y + 3}" width="{good:.1f}" height="16"></rect>'
            f'<rect class="bad" x="{220 + good:.1f}" y="{y + 3}" width="{bad:.1f}" height="16"></rect>'
            f'<text x="825" y="{y + 15}">{100 * (r.unplanned_ratio or 0.0):.2f} %</text>'
        )
    caption = f"Host time by {division}: serving users, and out of service unplanned (the rest was planned)"
    height = 24 * max(len(rows), 1)
    return _svg("".join(rows), height, caption)


def _times(values: Sequence[float]) -> str:
    """How many came back within which time; the steps double."""
    if not values:
        return "<p>Nothing came back in this time.</p>"
    edges = [60.0 * 2**n for n in range(18)]  # a minute to three months
    counts = [sum(low <= v < high for v in values) for low, high in zip([0.0, *edges], [*edges, 1e18], strict=True)]
    top = max(counts)
    step = _WIDTH / len(counts)
    bars = [
        f'<rect class="good" x="{n * step:.1f}" y="{20 + (1 - count / top) * _HEIGHT:.1f}" width="{step - 2:.1f}" '
        f'height="{count / top * _HEIGHT:.1f}"><title>{count}</title></rect>'
        for n, count in enumerate(counts)
    ]
    return _figure(bars, None, f"{len(values)} returns to service, by time", "under 1 min … each twice as long … more")


def _figure(bars: Sequence[str], top: float | None, caption: str, ends: str) -> str:
    scale = "" if top is None else f'<text x="0" y="12">{100 * top:.2f} %</text>'
    axis = f'<line class="line" x1="0" y1="{_HEIGHT + 20}" x2="{_WIDTH}" y2="{_HEIGHT + 20}"></line>'
    below = f'<text x="0" y="{_HEIGHT + 38}">{escape(ends)}</text>'
    return _svg(f"{scale}{''.join(bars)}{axis}{below}", _HEIGHT + 45, caption)


def _svg(inside: str, height: int, caption: str) -> str:
    said = escape(caption)
    return (
        f'<figure><svg role="img" aria-label="{said}" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" '
        f'height="{height}">{inside}</svg><figcaption>{said}</figcaption></figure>'
    )


def _date(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d")
