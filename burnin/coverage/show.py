"""How coverage is shown: a table and a few lines on a terminal."""

from collections.abc import Callable
from importlib import import_module
from typing import IO, Any

from burnin.coverage.rules import ABLATIONS, OPTIONAL_PEERS, PEERS
from burnin.coverage.score import RATE_ONLY


def ticker(out: IO[str]) -> Callable[[int, int], None]:
    """Tell a terminal how far the trials are; nothing on a pipe."""

    def tick(done: int, of: int) -> None:
        if out.isatty():
            out.write(f"\rburnin: coverage: trial {done} of {of}" + ("\n" if done == of else ""))
            out.flush()

    return tick


def _share(value: float) -> str:
    return f"{100 * value:.0f}"


def table(report: dict[str, Any], out: IO[str]) -> None:
    """Print detection by model, ours and others', in per cent."""
    others = (*ABLATIONS, *PEERS, RATE_ONLY, *OPTIONAL_PEERS)
    rich = import_module("rich.table")
    shown = rich.Table(
        title="planted faults detected, % of trials", title_justify="left", box=import_module("rich.box").SIMPLE
    )
    shown.add_column("fault")
    shown.add_column("weight", justify="right")
    shown.add_column("trials", justify="right")
    shown.add_column("ours [95 %]", justify="right")
    for name in others:
        shown.add_column(name, justify="right")
    for one in report["per_fault"]:
        low, high = one["interval"]
        mine = f"{_share(one['detection'])} [{_share(low)}-{_share(high)}]" if one["tests"] else "no test"
        seen = one["ablations"] | one["peers"]
        name = f"{one['fault']} {one['what']}"
        cells = [name, str(one["weight"] or "-"), str(one["trials"]), mine]
        shown.add_row(*cells, *(_share(seen[other]) if one["tests"] else "" for other in others))
    sums = {row["name"]: row for key in ("ablations", "peers", "peers_with_options") for row in report[key]}
    totals = [_share(sums[other]["weighted_detection"]) for other in others]
    shown.add_section()
    shown.add_row("F01-F13 weighted", "", "", _share(report["weighted_detection"]), *totals)
    console = import_module("rich.console").Console(file=out, width=None if out.isatty() else 160)
    console.print(shown)
    for one in report["scenarios"]:
        blamed = f"BLAMED GPUs {one['blamed']}" if one["blamed"] else "nobody blamed"
        console.print(f"{one['fault']:14} {one['what']}: {one['verdict']}, {blamed}", highlight=False)


def lines(report: dict[str, Any]) -> list[str]:
    """The summary: the verdict and its reasons, a line each."""
    best = report["best_peer"]
    ratio = f"{best['ratio']:.2f} times" if best["ratio"] is not None else "beyond"
    words = {0: "targets met", 1: "targets missed", 3: "not judged"}
    attribution = report["attribution"]
    blame = f"{100 * attribution:.1f} %" if attribution is not None else "nothing"
    detected = f"weighted detection {report['weighted_detection']:.3f}, {ratio} the best peer"
    bound = f"false verdicts in at most {report['false_verdict_upper_bound']:.1g} of them (95 %)"
    return [
        f"{detected} ({best['name']} {best['weighted_detection']:.3f}); {blame} of the detected rightly blamed",
        f"{report['false_quarantines']} false quarantines; {report['clean_launches']} clean launches: {bound}",
        *report["why"],
        f"coverage: {words[report['exit_code']]}",
    ]
