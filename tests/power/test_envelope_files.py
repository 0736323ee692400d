"""The shipped envelopes are sound, and `fleetd power check` and `simulate` say what is wrong with others."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fleetd.cli.power import command
from fleetd.config import ConfigError
from fleetd.config.envelope import envelope_path, read_envelope, shipped_envelopes
from fleetd.core.power.compiler import compile_envelope
from fleetd.core.power.ladder import Sight, sight

NAMES = {"mi350x-module", "mi350x-platform", "mi300x", "mi355x", "h100", "h200", "b200-750", "b200-1000"}

GOOD = """\
apiVersion: fleetd/v1
kind: PowerEnvelope
metadata: {name: site, reason: test, owner: test}
spec:
  match: {vendor: amd, sku: MI350X}
  tbp_watts: 1000
  windows:
    - {over: 20us, max_ratio: 2.0, semantics: window_avg, source: OAM}
    - {over: 20ms, max_ratio: 1.1, semantics: dwell, source: OAM}
    - {over: 1s, max_ratio: 1.0, semantics: window_avg, source: TBP}
  margin: {sensor_gain: 0.03, model: 0.01}
  actuators: {amd: {ppt0_watts: [600, 1000], ppt1_watts: [1000, 1360]}}
  firmware_filter: {ppt0_tau: unknown, ppt1_tau: unknown}
  safe: {cap_watts: 900}
  lease: {ttl: 200ms, grace: 50ms}
"""
ROW_20MS = "    - {over: 20ms, max_ratio: 1.1, semantics: dwell, source: OAM}\n"


def invoke(*args: str) -> Result:
    return CliRunner().invoke(command, list(args))


def write(tmp_path: Path, text: str, name: str = "e.yaml") -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def test_all_envelopes_ship() -> None:
    assert set(shipped_envelopes()) == NAMES


@pytest.mark.parametrize("name", sorted(NAMES))
def test_shipped_envelopes_are_sound_and_say_where_numbers_come_from(name: str) -> None:
    path = envelope_path(name)
    assert "# Sources:" in path.read_text(encoding="utf-8")
    run = invoke("check", name, "--json", "-")
    assert run.exit_code == 0, run.output
    body = json.loads(run.stdout)
    assert body["problems"] == []
    assert body["envelope"] == name
    assert body["safe_cap_watts"] <= body["sustained_watts"] <= body["tbp_watts"] * (1 - body["margin_ratio"])
    assert body["sustained_watts"] == min(b["rate_watts"] for b in body["buckets"])
    shown = invoke("check", name)
    assert shown.exit_code == 0
    assert "safe cap" in shown.output


def test_the_platform_supersedes_a_row_that_is_shown_and_not_enforced() -> None:
    body = json.loads(invoke("check", "mi350x-platform", "--json", "-").stdout)
    row = next(w for w in body["windows"] if w["row"] == "OAM-EDP/20ms")
    assert row["allowed_watts"] is None
    assert row["superseded_by"].startswith("platform/50ms")
    assert row["why"].startswith("superseded")


def test_unknown_rows_are_shown_and_not_enforced() -> None:
    body = json.loads(invoke("check", "mi300x", "--json", "-").stdout)
    unknown = [w for w in body["windows"] if w["row"] and w["max_ratio"] is None]
    assert [w["label"] for w in unknown] == ["20us", "20ms"]
    assert {w["status"] for w in unknown} == {"unobservable"}


def replaced(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new)


MALFORMED = {
    "unsorted": (replaced("over: 20us", "over: 30ms"), 9, "unsorted"),
    "negative": (replaced("max_ratio: 1.1", "max_ratio: -1.1"), 9, "is no ratio"),
    "duplicate": (replaced(ROW_20MS, ROW_20MS * 2), 10, "stands a second time"),
    "same window": (replaced(ROW_20MS, ROW_20MS + ROW_20MS.replace("OAM", "site")), 10, "stands a second time"),
    "unknown part": (replaced("sku: MI350X", "sku: MI999X"), 5, "no known part"),
    "part of the other vendor": (replaced("sku: MI350X", "sku: H200"), 5, "no known part of amd"),
    "limit 0": (replaced("[600, 1000]", "[0, 1000]"), 12, "0 W is no limit"),
    "limit UINT_MAX": (replaced("[1000, 1360]", "[1000, 4294967295]"), 12, "no value"),
    "cap 0": (replaced("cap_watts: 900", "cap_watts: 0"), 14, "0 W is no limit"),
    "milliwatts": (replaced("tbp_watts: 1000", "tbp_watts: 1000000"), 6, "milliwatts"),
    "microwatts": (replaced("cap_watts: 900", "cap_watts: 900000000"), 14, "microwatts"),
    "percentage": (replaced("max_ratio: 1.1", "max_ratio: 110"), 9, "percentage"),
    "no unit": (replaced("over: 20ms", "over: 20"), 9, "has no unit"),
    "not a duration": (replaced("over: 20ms", "over: 20 min"), 9, "is no duration"),
    "a window of no time": (replaced("over: 1s", f"over: {'9' * 400}s"), 10, "from 10 ns to a day"),
    "a window of less than anything": (replaced("over: 20us", f"over: 0.{'0' * 306}1us"), 8, "from 10 ns"),
    "a window of 0": (replaced("over: 20us", "over: 0us"), 8, "duration of 0"),
    "lease unknown": (replaced("ttl: 200ms", "ttl: unknown"), 15, "yours to say"),
    "range of one": (replaced("[600, 1000]", "[600]"), 12, "write [lowest, highest]"),
    "range upside down": (replaced("[600, 1000]", "[1000, 600]"), 12, "lowest value stands first"),
    "cap out of reach": (replaced("[600, 1000]", "[950, 1000]"), 14, "ppt0 takes"),
    "supersedes without approval": (
        replaced("source: TBP}", "source: TBP, supersedes: [OAM/20ms]}"),
        10,
        "needs an `approval`",
    ),
    "supersedes nothing": (
        replaced("source: TBP}", "source: TBP, supersedes: [OAM/30ms], approval: me}"),
        10,
        "no other row `OAM/30ms`",
    ),
    "supersedes itself": (
        replaced("source: TBP}", "source: TBP, supersedes: [TBP/1s], approval: me}"),
        10,
        "no other row `TBP/1s`",
    ),
    "margin in percent": (replaced("sensor_gain: 0.03", "sensor_gain: 3"), 11, "3 % is 0.03"),
    "knobs of the other vendor": (
        replaced("{amd: {ppt0_watts: [600, 1000], ppt1_watts: [1000, 1360]}}", "{nvidia: {}}"),
        12,
        "actuators of nvidia",
    ),
    "misspelt": (replaced("max_ratio: 1.1", "max_ration: 1.1"), 9, "did you mean `max_ratio`"),
    "no windows": (GOOD[: GOOD.index("    - ")].rstrip() + " []\n" + GOOD[GOOD.index("  margin") :], 7, "no window"),
}


@pytest.mark.parametrize("case", sorted(MALFORMED))
def test_malformed_envelopes_are_refused_with_line_and_reason(case: str, tmp_path: Path) -> None:
    text, line, says = MALFORMED[case]
    path = write(tmp_path, text)
    run = invoke("check", str(path), "--json", str(tmp_path / "out.json"))
    assert run.exit_code == 2, run.output
    assert run.stderr.startswith(f"{path}:{line}: ")
    assert says in run.stderr
    assert run.stderr.count("\n") == 1
    body = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert (body["exit_code"], body["problems"][0]["line"]) == (2, line)


INFEASIBLE = {
    "ratios that rise": (replaced("max_ratio: 1.1", "max_ratio: 0.9"), 10, "must supersede"),
    "energy that does not grow": (
        replaced("over: 1s, max_ratio: 1.0", "over: 21ms, max_ratio: 0.1"),
        10,
        "no more energy",
    ),
    "a cap above what holds for ever": (replaced("cap_watts: 900", "cap_watts: 960"), 14, "no software running"),
    "a floor above the cap": (GOOD + "  lower: {floor_watts: 901}\n", 14, "the floor of 901 W is above the safe cap"),
    "a part that draws more": (GOOD + "  lowest_draw_watts: 970\n", 14, "no clock keeps"),
}


@pytest.mark.parametrize("case", sorted(INFEASIBLE))
def test_infeasible_envelopes_are_refused_with_line_and_reason(case: str, tmp_path: Path) -> None:
    text, line, says = INFEASIBLE[case]
    path = write(tmp_path, text)
    run = invoke("check", str(path))
    assert run.exit_code == 1, run.output
    assert run.stderr.startswith(f"{path}:{line}: ")
    assert says in run.stderr


def test_a_name_that_does_not_ship_lists_those_that_do() -> None:
    run = invoke("check", "mi999x")
    assert run.exit_code == 2
    assert "mi350x-module" in run.stderr


def test_included_rows_hold_and_are_found_in_their_file(tmp_path: Path) -> None:
    platform = replaced(ROW_20MS, "").replace("  margin", "  includes: [module.yaml]\n  margin").replace("OAM", "site")
    module = write(tmp_path, GOOD, "module.yaml")
    # TBP/1s stands in both: the same name twice is a mistake, wherever the two are.
    twice = write(tmp_path, platform)
    with pytest.raises(ConfigError, match=r"module\.yaml:8|e\.yaml:8") as caught:
        read_envelope(twice)
    assert "stands a second time" in str(caught.value)
    lines = platform.splitlines(keepends=True)
    alone = "".join(line for line in lines if "site}" not in line and "TBP}" not in line)
    row = "over: 50ms, max_ratio: 1.36, semantics: window_avg, source: site"
    own = f"    - {{{row}, supersedes: [OAM/20ms], approval: me}}\n"
    read_one = read_envelope(write(tmp_path, alone.replace("  windows:\n", "  windows:\n" + own)))
    assert [w.name for w in read_one.envelope.enforced] == ["OAM/20us", "site/50ms", "TBP/1s"]
    assert read_one.place(1) == (module, 9)
    assert compile_envelope(read_one.envelope).sustained_watts == pytest.approx(0.96 * 1000 * 932 / 950)


def test_an_included_envelope_is_for_the_same_part(tmp_path: Path) -> None:
    write(tmp_path, GOOD.replace("tbp_watts: 1000", "tbp_watts: 1400"), "module.yaml")
    with pytest.raises(ConfigError, match="another TBP"):
        read_envelope(write(tmp_path, GOOD.replace("  margin", "  includes: [module.yaml]\n  margin")))


def test_no_host_loop_certifies_what_is_shorter_than_sensing_and_actuation(tmp_path: Path) -> None:
    loop = "  loop: {sensing: 100ms, actuation: 350ms, samples: 20ms}\n"
    e = read_envelope(write(tmp_path, GOOD + loop)).envelope
    assert sight(e, 1.0)[0] is Sight.CERTIFIED
    assert sight(e, 0.45)[0] is Sight.CERTIFIED
    assert sight(e, 0.449)[0] is Sight.AUDITED
    assert sight(e, 0.02)[0] is Sight.AUDITED
    assert sight(e, 0.019)[0] is Sight.UNOBSERVABLE
    bound = read_envelope(write(tmp_path, replaced("ppt0_watts: [600, 1000], ppt1_watts: [1000, 1360]", "") + loop))
    assert sight(bound.envelope, 1.0)[0] is Sight.AUDITED  # it sees in time, and can set nothing
    assert "no limit that it could set" in sight(bound.envelope, 1.0)[1]
    blind = read_envelope(write(tmp_path, GOOD)).envelope
    assert sight(blind, 1.0)[0] is Sight.UNOBSERVABLE


def test_a_known_filter_certifies_the_windows_that_its_bucket_keeps(tmp_path: Path) -> None:
    e = read_envelope(write(tmp_path, replaced("ppt0_tau: unknown", "ppt0_tau: 10ms"))).envelope
    kept, why = sight(e, 0.02)
    assert kept is Sight.CERTIFIED
    assert "ppt0 at most 704 W" in why  # 1.1 x 1000 W x 0.96 x 20 / (10 + 20)
    assert sight(e, 0.001)[0] is Sight.UNOBSERVABLE  # the firmware would have to go below its lowest limit


TRACE = "at_s,watts\n0,600\n0.01,1200\n0.02,600\n0.03,600\n"


@pytest.mark.parametrize(
    ("trace", "line", "says"),
    [
        ("watts,at_s\n0,1\n1,1\n", 1, "begins with the line"),
        ("", 1, "begins with the line"),
        (TRACE + "0.5,600\n", 6, "a gap of 0.47 s"),
        (TRACE + "0.04,\n", 6, "a gap: there is no power"),
        (TRACE + "0.04,nan\n", 6, "a gap: the number is not finite"),
        (TRACE + "0.03,600\n", 6, "is not after"),
        (TRACE + "0.04,-1\n", 6, "is no draw"),
        (TRACE + "0.04,600000\n", 6, "is it in milliwatts"),
        (TRACE + "0.04,4294967295\n", 6, "what a driver says for `no value`"),
        (TRACE + "0.04,65535\n", 6, "what a driver says for `no value`"),
        ("at_s,watts\n-1e308,1\n1e308,1\n", 2, "is no time in seconds"),
        (TRACE + "0.04," + "1" * 200_000 + "\n", 6, "is no power of one GPU"),
        (TRACE + "0.04;1\n", 6, "expected `at_s,watts`"),
        (TRACE + "now,1\n", 6, "is not two numbers"),
        ("at_s,watts\n0,1\n", 2, "two lines at least"),
    ],
)
def test_a_trace_that_cannot_be_used_is_refused_with_line_and_reason(
    trace: str, line: int, says: str, tmp_path: Path
) -> None:
    path = write(tmp_path, trace, "t.csv")
    run = invoke("simulate", str(path), "--envelope", "h200")
    assert run.exit_code == 2
    assert f"{path}:{line}: " in run.stderr
    assert says in run.stderr
    assert run.stderr.count("\n") == 1


def steady(watts: float, burst: float) -> str:
    lines = [f"{n / 100:.2f},{burst if n % 100 < 10 else watts}" for n in range(301)]
    return "at_s,watts\n" + "\n".join(lines) + "\n"


def test_simulate_finds_the_worst_ratio_of_every_window(tmp_path: Path) -> None:
    path = write(tmp_path, steady(640, 900), "t.csv")
    run = invoke("simulate", str(path), "--envelope", "h200", "--json", "-")
    assert run.exit_code == 0
    body = json.loads(run.stdout)
    assert [w["row"] for w in body["windows"]] == ["TDP/1s"]
    assert body["windows"][0]["worst_ratio"] == pytest.approx((0.9 * 640 + 0.1 * 900) / 700)
    assert body["energy_joules"] == pytest.approx(3 * (0.9 * 640 + 0.1 * 900))
    assert body["energy_error_joules"] == pytest.approx(0.03 * body["energy_joules"])
    shown = invoke("simulate", str(path), "--envelope", "h200")
    assert "kept" in shown.output


def test_one_short_line_does_not_show_what_lies_within_the_long_ones(tmp_path: Path) -> None:
    lines = [f"{n / 50:.5f},900" for n in range(60)]
    text = "\ufeffat_s,watts\n" + "\n".join([*lines[:30], "0.58001,900", *lines[30:]]) + "\n"
    body = json.loads(
        invoke("simulate", str(write(tmp_path, text, "t.csv")), "-e", "mi350x-module", "--json", "-").stdout
    )
    assert {w["label"]: w["resolved"] for w in body["windows"] if w["row"]} == {"20us": False, "20ms": True, "1s": True}
    assert not any(w["resolved"] for w in body["windows"] if w["window_s"] < 0.019)


def test_simulate_exits_1_when_the_envelope_is_broken(tmp_path: Path) -> None:
    path = write(tmp_path, steady(690, 900), "t.csv")
    run = invoke("simulate", str(path), "--envelope", "h200")
    assert run.exit_code == 1
    assert "broken" in run.output


def test_simulate_cannot_judge_a_trace_that_is_shorter_than_every_window(tmp_path: Path) -> None:
    run = invoke("simulate", str(write(tmp_path, TRACE, "t.csv")), "--envelope", "h200")
    assert run.exit_code == 3
    assert "shorter than every window" in run.stderr


@pytest.mark.parametrize("ending", ["png", "html"])
def test_simulate_draws(ending: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path, plot = write(tmp_path, steady(640, 900), "t.csv"), tmp_path / f"plot.{ending}"
    assert invoke("simulate", str(path), "--envelope", "mi350x-module", "--plot", str(plot)).exit_code == 0
    begins = {"png": b"\x89PNG", "html": b"<!doctype html>"}[ending]
    assert plot.read_bytes().startswith(begins)


def test_simulate_refuses_a_picture_of_another_kind(tmp_path: Path) -> None:
    run = invoke("simulate", str(write(tmp_path, steady(1, 2), "t.csv")), "--envelope", "h200", "--plot", "x.svg")
    assert run.exit_code == 2
    assert ".png or .html" in run.stderr


@pytest.mark.parametrize(
    ("envelope", "vendor", "sku", "is_for"),
    [
        ("h200", "nvidia", "NVIDIA H200", True),
        ("h200", "nvidia", "NVIDIA H200 NVL", False),
        ("h200", "nvidia", "NVIDIA GH200 480GB", False),
        ("h200", "amd", "NVIDIA H200", False),
        ("h100", "nvidia", "NVIDIA H100 80GB HBM3", True),
        ("h100", "nvidia", "NVIDIA H100 PCIe", False),
        ("mi300x", "amd", "AMD Instinct MI300X", True),
        ("mi300x", "amd", "AMD-Instinct-MI300X-VF", False),
        ("mi300x", "amd", "AMD Instinct MI308X", False),
        ("b200-1000", "nvidia", "NVIDIA GB200", False),
        ("b200-1000", "nvidia", "", False),
    ],
)
def test_an_envelope_is_for_the_board_that_its_numbers_are_of(
    envelope: str, vendor: str, sku: str, *, is_for: bool
) -> None:
    assert read_envelope(envelope_path(envelope)).envelope.is_for(vendor, sku) is is_for
