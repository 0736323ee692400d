"""Power over time, and its worst average against every window, as a picture."""

import base64
import html
import io
from pathlib import Path

from fleetd.cli.failure import Failure
from fleetd.core.power.checker import Trace, allowed_watts, log_spaced
from fleetd.core.power.judge import Judged
from fleetd.model.envelope import Envelope, Semantics

POINTS = 60
"""Windows on the curves."""


def draw(path: Path, limits: Envelope, power: Trace, judged: list[Judged]) -> None:
    """Write the picture, as PNG or inside an HTML page by the name's ending. Raises Failure."""
    if path.suffix not in {".png", ".html"}:
        raise Failure(f"cannot draw {path}: give --plot a name that ends in .png or .html")
    content = _png(limits, power, judged)
    if path.suffix == ".html":
        picture = base64.b64encode(content).decode("ascii")
        title = html.escape(f"Power under {limits.name}")
        page = f'<!doctype html><meta charset="utf-8"><title>{title}</title><h1>{title}</h1>'
        content = f'{page}<img alt="{title}" src="data:image/png;base64,{picture}">\n'.encode()
    try:
        path.write_bytes(content)
    except OSError as error:
        raise Failure(f"cannot write {path}: {error.strerror}; give --plot a path that can be written") from None


def _png(limits: Envelope, power: Trace, judged: list[Judged]) -> bytes:
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - an agent's host has no matplotlib
    except ModuleNotFoundError:
        raise Failure("--plot needs `matplotlib`: pip install 'fleetd[plots]'") from None
    figure = Figure(figsize=(9, 7), layout="constrained")
    over_time, over_windows = figure.subplots(2)
    over_time.stairs(power.watts, power.edges_s, baseline=None)
    over_time.set(xlabel="time, s", ylabel="power, W", title=f"{limits.name} ({limits.part})")
    over_time.axhline(limits.tbp_watts, linestyle=":", color="grey", label="TBP")
    over_time.legend()
    rows = limits.enforced
    windows = log_spaced(rows[0].over_s, rows[-1].over_s * (2 if len(rows) == 1 else 1), POINTS)
    averages = [(w, a[0]) for w in windows if (a := power.worst_average(w)) is not None]
    over_windows.semilogx([w for w, _ in averages], [a for _, a in averages], label="worst average of the trace")
    over_windows.semilogx(windows, [allowed_watts(limits, w) for w in windows], color="black", label="allowed")
    for j in judged:
        if j.row is not None and j.worst is not None and j.semantics is Semantics.WINDOW_AVG:
            over_windows.plot(j.window_s, j.worst.watts, "rv" if j.broken else "go")
    over_windows.set(xlabel="window, s", ylabel="highest average power, W")
    over_windows.legend()
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=120)
    return out.getvalue()
