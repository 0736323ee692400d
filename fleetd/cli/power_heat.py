"""The boost surface of a duty-cycle benchmark as a heat map: on the terminal, as PNG, as a page."""

import base64
import html
import io
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fleetd.cli.failure import Failure

COLD, HOT = (38, 70, 83), (231, 111, 81)
"""Colours of boost 1.0 and of the highest."""


def _grid(body: dict[str, Any]) -> tuple[list[float], list[float], dict[tuple[float, float], dict[str, Any]]]:
    points = {(point["kernel_s"], point["duty"]): point for point in body["points"]}
    return sorted({k for k, _ in points}), sorted({d for _, d in points}), points


def _colour(boost: float, highest: float) -> tuple[int, int, int]:
    share = 0.0 if highest <= 1.0 else min(1.0, max(0.0, (boost - 1.0) / (highest - 1.0)))
    red, green, blue = (round(cold + (hot - cold) * share) for cold, hot in zip(COLD, HOT, strict=True))
    return red, green, blue


def kernel_text(seconds: float) -> str:
    """A burst's length for people: `300 µs`, `5 ms`."""
    return f"{seconds * 1e6:g} µs" if seconds < 1e-3 else f"{seconds * 1e3:g} ms"  # noqa: PLR2004 - a millisecond


def show(body: dict[str, Any]) -> None:
    """Print the surface and the best point."""
    kernels, duties, points = _grid(body)
    best = body["best"]
    table = Table("burst", *(f"duty {duty:.0%}" for duty in duties), box=None)
    for kernel in kernels:
        cells = []
        for duty in duties:
            point = points.get((kernel, duty))
            style = f"on rgb({','.join(map(str, _colour(point['boost'], best['boost'])))}) white" if point else ""
            cells.append(Text(f" {point['boost']:.3f} " if point else "-", style=style))
        table.add_row(kernel_text(kernel), *cells)
    console = Console(highlight=False)
    console.print(f"boost of bursts against back to back, {body['part']} ({body['backend']})")
    console.print(table)
    console.print(f"best: {_words(best)}")
    if body.get("energy"):
        energy = body["energy"]
        ratio = energy["integrated_joules"] / energy["counter_joules"]
        console.print(f"energy: integrated samples / counter = {ratio:.4f} over {energy['seconds']:.0f} s")
    counts = [point["violations"] for point in body["points"] if point["violations"] is not None]
    if counts:  # on a real part, or one under its vendor's own limiter, nothing was checked against an envelope
        console.print(f"windows that broke the envelope: {sum(counts)}")


def _words(point: dict[str, Any]) -> str:
    sure = "" if point["boost_low"] is None else f" ({point['boost_low']:.3f} … {point['boost_high']:.3f})"
    watts = "" if point["power_watts"] is None else f", {point['power_watts']:.0f} W"
    return f"{point['boost']:.3f}x{sure} at duty {point['duty']:.0%}, bursts of {kernel_text(point['kernel_s'])}{watts}"


def _png(body: dict[str, Any]) -> bytes | None:
    """The picture; None without matplotlib."""
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - an agent's host has no matplotlib
    except ModuleNotFoundError:
        return None
    kernels, duties, points = _grid(body)
    values = [[points[k, d]["boost"] if (k, d) in points else float("nan") for d in duties] for k in kernels]
    figure = Figure(figsize=(1.6 + 1.1 * len(duties), 1.6 + 0.55 * len(kernels)), layout="constrained")
    axes = figure.subplots()
    picture = axes.imshow(values, aspect="auto", cmap="inferno", vmin=1.0, origin="lower")
    axes.set_xticks(range(len(duties)), [f"{duty:.0%}" for duty in duties])
    axes.set_yticks(range(len(kernels)), [kernel_text(kernel) for kernel in kernels])
    axes.set(xlabel="duty", ylabel="burst", title=f"boost against back to back: {body['part']}")
    highest = max(point["boost"] for point in body["points"])
    for row, line in enumerate(values):
        for column, boost in enumerate(line):
            dark = boost < 1.0 + 0.6 * (highest - 1.0)
            axes.text(column, row, f"{boost:.3f}", ha="center", va="center", color="white" if dark else "black")
    figure.colorbar(picture, ax=axes)
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=120)
    return out.getvalue()


def draw_png(path: Path, body: dict[str, Any]) -> None:
    """Write the heat map as PNG. Raises Failure."""
    content = _png(body)
    if content is None:
        raise Failure("--png needs `matplotlib`: pip install 'fleetd[plots]'")
    _write(path, content, "--png")


def draw_html(path: Path, body: dict[str, Any]) -> None:
    """Write one self-contained page: coloured cells, and the picture where it can be drawn. Raises Failure."""
    kernels, duties, points = _grid(body)
    best = body["best"]
    head = "".join(f"<th>{duty:.0%}</th>" for duty in duties)
    rows = []
    for kernel in kernels:
        cells = []
        for duty in duties:
            point = points.get((kernel, duty))
            if point is None:
                cells.append("<td>-</td>")
                continue
            red, green, blue = _colour(point["boost"], best["boost"])
            cells.append(
                f'<td style="background:rgb({red},{green},{blue})" title="{_words(point)}">{point["boost"]:.3f}</td>'
            )
        rows.append(f"<tr><th>{kernel_text(kernel)}</th>{''.join(cells)}</tr>")
    title = html.escape(f"Duty-cycle boost: {body['part']}")
    content = _png(body)
    picture = ""
    if content is not None:
        picture = f'<p><img alt="heat map" src="data:image/png;base64,{base64.b64encode(content).decode("ascii")}">'
    style = "body{font:16px sans-serif;margin:2em}td{color:#fff;padding:.5em 1em;text-align:right}th{padding:.5em 1em}"
    problems = "".join(f"<li>{html.escape(problem)}" for problem in body["problems"])
    page = (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>{style}</style>'
        f"<h1>{title}</h1><p>Best: {html.escape(_words(best))}. Boost is the rate inside bursts against the same work "
        f"back to back under the same limit, mean of {body['repeats']} repeats.<ul>{problems}</ul>"
        f"<table><tr><th>burst \\ duty</th>{head}</tr>{''.join(rows)}</table>{picture}</html>\n"
    )
    _write(path, page.encode(), "--html")


def _write(path: Path, content: bytes, option: str) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        raise Failure(f"cannot write {path}: {error.strerror}; give {option} a path that can be written") from None
