"""The report as one self-contained HTML page: the verdict and what to do first, then who, what, where, and what not.

No script, nothing loaded; in light and dark, on paper, and read aloud. It shows any report of the schema, also an older
one that lacks what came later.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from burnin.spec import ExitCode, FaultClass, Verdict
from burnin.telling.advice import MEANING, advice
from burnin.telling.markup import STYLE, Markup, listed, section, table, tag
from burnin.telling.pictures import band, bits, result_map, timeline, unit_map

GROUPS_MAX = 12
"""Signatures are told by GPU and test; more groups than these stand in the JSON report only."""
COMMANDS_MAX = 4
QUANTITIES = (
    ("power_watts", "mean", 1.0, "W"),
    ("temperature_celsius", "max", 1.0, "°C"),
    ("sm_clock_hertz", "mean", 1e6, "MHz"),
)
"""What a GPU felt: quantity, which of its spread is told, the unit that people use of it."""
SPACE = "\N{NO-BREAK SPACE}"
PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def to_html(report: dict[str, Any]) -> str:
    """The page; every value is escaped, nothing is loaded from elsewhere."""
    title = f"Burn-in of {report['host']}: {report['verdict'].replace('_', ' ')}"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width"),
        tag("title", title),
        tag("style", Markup(STYLE)),
    )
    main = tag(
        "main",
        section("next", "What to do next", listed(advice(report), ordered=True)),
        _again(report),
        section("gpus", "GPUs", _gpus(report), _timeline(report)),
        section("signatures", _counted(report), *_signatures(report)),
        section("rates", "Rates", _rates(report), _measured(report)),
        section("tests", "Tests", _tests(report)),
        section("felt", "Felt by each GPU in each test", _felt_by(report)),
        section("open", "What was not judged, and why", listed(_open(report))),
        section("notes", "Notes", listed(report["notes"])),
        section("about", "What ran", listed([f"{name} {version}" for name, version in report["versions"].items()])),
    )
    foot = tag("footer", f"Schema {report['schema']}; vote key {report['vote_key']}. Everything here is in the JSON.")
    return f'<!doctype html>\n<html lang="en">{head}{tag("body", _top(report), main, foot)}</html>\n'


def _top(report: dict[str, Any]) -> Markup:
    """The verdict, its reason, and what run it is."""
    counts = Counter(gpu["verdict"] for gpu in report["gpus"])
    began = datetime.fromtimestamp(report["started_at_s"], UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    facts = (
        ("Host", report["host"]),
        ("Level", f"{report['level']} on {report['backend']}"),
        ("GPUs", ", ".join(f"{n} {v.replace('_', ' ')}" for v, n in counts.items()) or "none"),
        ("Exit code", MEANING[ExitCode(report["exit_code"])]),
        ("Began", began),
        ("Took", _duration(report["elapsed_s"])),
        ("Seed", str(report["seed"])),
    )
    planted = [
        f"{one['fault']} on GPU {one['index']} at rate {one['rate']:g} changed {one['fired']:,} launches and was "
        f"{'found' if one['found'] else 'NOT found'}"
        for one in report["injected"]
    ]
    warning = "A demonstration, no verdict: a fault was planted. " + "; ".join(planted)
    return tag(
        "header",
        tag("h1", f"Burn-in of {report['host']}: ", _verdict(report["verdict"])),
        tag("p", report["why"]),
        tag("p", warning, class_="warn") if planted else "",
        tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in facts)),
        class_=f"top {report['verdict']}",
    )


def _verdict(verdict: str) -> Markup:
    return tag("span", verdict.replace("_", " "), class_=verdict)


def _duration(seconds: float) -> str:
    minutes, hours = seconds / 60, seconds / 3600
    return f"{seconds:.1f} s" if minutes < 2 else f"{minutes:.1f} min" if hours < 2 else f"{hours:.1f} h"  # noqa: PLR2004


def _again(report: dict[str, Any]) -> Markup:
    """The commands that show what was wrong once more, each test once, and the one that repeats the run."""
    commands = list(dict.fromkeys(one["reproduce"] for one in report["signatures"]))[:COMMANDS_MAX]
    commands += [report["reproduce"]] if "reproduce" in report else []
    return section("again", "See it again", *(tag("pre", tag("code", command)) for command in commands))


def _gpus(report: dict[str, Any]) -> Markup:
    wrong = Counter[str]()
    for one in report["signatures"]:
        wrong[one["gpu"]] += one["count"]
    whole = len(report["signatures"]) == report["signatures_total"]
    rows = []
    for gpu in report["gpus"]:
        felt = [one for test in report["tests"] for one in test.get("gpus", []) if one["index"] == gpu["index"]]
        hottest: dict[str, Any] = max(felt, key=lambda one: (one["power_watts"] or {"mean": -1.0})["mean"], default={})
        peak = [one["temperature_celsius"]["max"] for one in felt if one["temperature_celsius"]]
        number = wrong[gpu["gpu"]]
        mismatches = f"{number:,}" if whole or not number else f"{number:,} or more"
        rows.append(
            [
                str(gpu["index"]),
                gpu["gpu"],
                _verdict(gpu["verdict"]),
                gpu.get("class", ""),
                mismatches,
                str(gpu["strikes"]),
                _shares(report, gpu["index"]),
                _quantity(hottest, *QUANTITIES[0]),
                f"{max(peak):.0f}{SPACE}°C" if peak else "",
                _quantity(hottest, *QUANTITIES[2]),
                gpu.get("why", ""),
            ]
        )
    header = (
        "GPU",
        "id",
        "verdict",
        "class",
        "wrong launches",
        "strikes",
        "lowest rate",
        "watts",
        "peak",
        "clock",
        "why",
    )
    return table("Watts and clock: means of the test that drew most. Empty: could not be read.", header, rows)


def _shares(report: dict[str, Any], index: int) -> str:
    """The case in which a GPU falls short most of what it is held against."""
    shares = [
        (one["best"] / reference, of)
        for one in report.get("rates", [])
        if one["index"] == index
        for reference, of in ((one["median"], "median"), (one["expected"], "expected"))
        if reference
    ]
    if not shares:
        return ""
    share, of = min(shares)
    return f"{share:.2f} of {of}"


def _timeline(report: dict[str, Any]) -> Markup:
    tests = [(test["id"], test["elapsed_s"]) for test in report["tests"] if test["elapsed_s"] > 0]
    if not tests or not report["gpus"]:
        return Markup("")
    wrong = Counter((one["index"], one["test"]) for one in report["signatures"])
    return timeline([gpu["index"] for gpu in report["gpus"]], tests, wrong)


def _rates(report: dict[str, Any]) -> Markup:
    """Each case on a scale, GPUs as dots; nothing where no rate was held against anything."""
    cases: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for one in report.get("rates", []):
        cases[one["test"], one["case"]].append(one)
    slow = frozenset(one["index"] for one in report["culprits"] if one["class"] == FaultClass.SLOW)
    rows = []
    for (test, case), rates in cases.items():
        first = rates[0]
        unit = "FLOP/s" if first["name"].endswith("flops_per_second") else "B/s" if "bytes" in first["name"] else "/s"
        best = [one["best"] for one in rates]
        spread = _si(min(best), unit) if len(best) == 1 else f"{_si(min(best), unit)} … {_si(max(best), unit)}"
        expected = _si(first["expected"], unit) if first["expected"] is not None else "none"
        rows.append(
            [
                f"{test} {case}",
                spread,
                _si(first["median"], unit) if first["median"] is not None else "too few GPUs",
                expected,
                band(rates, slow),
                f"{first['why']}; its error {first['expected_error']:.0%}" if first["expected"] else first["why"],
            ]
        )
    if not rows:
        return Markup("")
    header = ("case", "GPUs", "median", "expected", "from 0", "bound by, or why nothing is expected")
    told = "Dots: GPUs (red: slow). Black line: median; blue line: expected; shaded: slow."
    return table(told, header, rows)


def _measured(report: dict[str, Any]) -> Markup:
    """All mean rates of every GPU, folded away."""
    rows = []
    for test in report["tests"]:
        by_gpu = {gpu["index"]: gpu["rates"] for gpu in test.get("gpus", [])}
        for name, mean in test["rates"].items():
            cells = [by_gpu[gpu["index"]].get(name) for gpu in report["gpus"] if gpu["index"] in by_gpu] or [mean]
            unit = "FLOP/s" if name.endswith("flops_per_second") else "B/s" if "bytes" in name else "/s"
            rows.append([f"{test['id']}: {name}", " | ".join("" if one is None else _si(one, unit) for one in cells)])
    if not rows:
        return Markup("")
    inner = table("Means over the run; the best of each GPU stand above", ("rate", "GPUs in their order"), rows)
    return tag("details", tag("summary", f"All {len(rows)} rates that were measured"), inner)


def _si(value: float, unit: str) -> str:
    for scale, prefix in PREFIXES:
        if value >= scale:
            return f"{value / scale:.4g}{SPACE}{prefix}{unit}"
    return f"{value:.4g}{SPACE}{unit}"


def _tests(report: dict[str, Any]) -> Markup:
    rows = []
    for test in report["tests"]:
        work = [f"{test['launches']:,}", _si(float(test["bytes"]), "B"), f"{test['elapsed_s']:.1f}{SPACE}s"]
        rows.append([test["id"], _verdict(test["verdict"]), test.get("class", ""), *work, test.get("why", "")])
    return table("Work of all GPUs", ("test", "verdict", "class", "launches", "checked", "time", "why"), rows)


def _felt_by(report: dict[str, Any]) -> Markup:
    """What every GPU felt in every test; nothing where no GPU has sensors."""
    rows = []
    for test in report["tests"]:
        felt = {gpu["index"]: _felt(gpu) for gpu in test.get("gpus", [])}
        if any(felt.values()):
            rows.append([test["id"], *(felt.get(gpu["index"], "") for gpu in report["gpus"])])
    header = ("test", *(f"GPU {gpu['index']}" for gpu in report["gpus"]))
    return table("Mean power, highest temperature, mean clock", header, rows) if rows else Markup("")


def _felt(one: dict[str, Any]) -> str:
    return " ".join(said for quantity in QUANTITIES if (said := _quantity(one, *quantity)))


def _quantity(one: dict[str, Any], name: str, part: str, scale: float, unit: str) -> str:
    spread = one.get(name)
    return f"{spread[part] / scale:.0f}{SPACE}{unit}" if spread is not None else ""


def _counted(report: dict[str, Any]) -> str:
    return f"What was wrong ({len(report['signatures'])} of {report['signatures_total']} signatures)"


def _signatures(report: dict[str, Any]) -> Iterator[Markup]:
    """By GPU and test: what is common to the signatures, in pictures and words."""
    groups: dict[tuple[int, str], list[dict[str, Any]]] = defaultdict(list)
    for one in report["signatures"]:
        groups[one["index"], one["test"]].append(one)
    counts = {gpu["index"]: gpu.get("sm_count") for gpu in report["gpus"]}
    for (index, test), several in list(groups.items())[:GROUPS_MAX]:
        pictures = [picture for picture in _pictures(several, counts[index]) if picture is not None]
        yield tag("h3", f"GPU {index}, {test}")
        yield tag("p", several[0]["why"])
        yield listed([_words(one) for one in several[:4]])
        if pictures:
            yield tag("div", *pictures, class_="pictures")
    if len(groups) > GROUPS_MAX:
        yield tag("p", f"{len(groups) - GROUPS_MAX} more of other GPUs and tests are in the JSON report.")


def _words(one: dict[str, Any]) -> str:
    """One signature in words."""
    parts = [f"{one['case']}: {one['count']:,} of {one['launches']:,} launches wrong against the {one['against']}"]
    parts += ["again, when retested"] if one["retest"] else []
    parts += [f"first in {one['op']}"] if one["op"] else []
    parts += [f"{one['tiles_total']:,} tile{'' if one['tiles_total'] == 1 else 's'}"] if one["tiles_total"] else []
    elements = one.get("elements")
    if elements is not None:
        row, column = elements["first"]
        parts.append(f"{elements['count']:,} of {elements['compared']:,} elements, first [{row}, {column}]")
        parts += [f"{elements['period']:,} apart or a multiple of it"] if (elements["period"] or 1) > 1 else []
    felt = _felt(one)
    return ", ".join([*parts, *([felt] if felt else []), f"seed {one['seed']}"])


def _pictures(several: list[dict[str, Any]], units: int | None) -> Iterator[Markup | None]:
    """Of one GPU in one test: bits, the first case with wrong tiles, multiprocessors."""
    flips, wrong = Counter[int](), 0
    for one in several:
        if one.get("elements") is not None:
            wrong += one["elements"]["count"]
            flips.update({int(bit): count for bit, count in one["elements"]["bits"].items()})
    if flips:
        yield bits(flips, wrong)
    tiled = sorted((one for one in several if one["tiles"]), key=lambda one: one.get("elements") is None)
    for one in tiled[:1]:
        elements = one.get("elements") or {"first": None, "period": None}
        yield result_map(one["case"], one["tiles"], elements["first"], elements["period"])
    named = Counter(one["op"] for one in several if one["op"])
    if named and several[0]["test"] == "gemm.smvote":
        yield unit_map(named, units)


def _open(report: dict[str, Any]) -> list[str]:
    lines = [
        f"{one['id']}: {one['why']}{' (required: without it there is no verdict)' if one.get('required') else ''}"
        for one in report["not_run"]
    ]
    told = {(one["id"], one["why"]) for one in report["not_run"]}
    lines += [
        f"{test['id']}: {test['why']}"
        for test in report["tests"]
        if test["verdict"] == Verdict.NOT_JUDGED and (test["id"], test["why"]) not in told
    ]
    lines += [
        f"GPU {gpu['index']}: {gpu.get('why', '')}" for gpu in report["gpus"] if gpu["verdict"] == Verdict.NOT_JUDGED
    ]
    return lines + [f"GPU {one['index']}, {one['test']}: its process: {one['why']}" for one in report["deaths"]]
