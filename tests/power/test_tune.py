"""Tuning finds the fastest set-point that keeps the envelope; what is stored is read back strictly, and lapses."""

import itertools
import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from fleetd.cli import main
from fleetd.config import ConfigError
from fleetd.config.envelope import read_envelope
from fleetd.config.setpoint import load_setpoint, setpoint_text, store_setpoint
from fleetd.core.power.setpoint import SetPoint, envelope_sha256, lapsed
from fleetd.core.power.tune import (
    MAX_CANDIDATES,
    Candidate,
    Evaluate,
    Profile,
    Rung,
    Trial,
    Work,
    candidates,
    halving,
    weighted_speedup,
)
from fleetd.sim.plant import Loop
from fleetd.sim.trials import Trials
from tests.power.rigs_power import STEEP, module

ENVELOPE = module(0.04)
GRID = candidates(ENVELOPE, base_hertz=STEEP.chip.clock_base_hertz)


def evaluating(speed: Callable[[Candidate, float], float], ratio: Callable[[Candidate, float], float]) -> Evaluate:
    def evaluate(of: Sequence[Candidate], seconds: float) -> list[Trial]:
        return [
            Trial(candidate=c, seconds=seconds, speedup=speed(c, seconds), worst_ratio=ratio(c, seconds)) for c in of
        ]

    return evaluate


def rounds(evaluate: Evaluate, tried: Sequence[Candidate] = GRID) -> list[Rung]:
    return list(halving(tried, evaluate, envelope=ENVELOPE, seconds=1.2))


def test_the_grid_stays_within_what_the_part_takes() -> None:
    assert len(GRID) == len(set(GRID)) <= MAX_CANDIDATES
    limits = {c.raw_watts for c in GRID}
    assert limits == {None, 1000.0, 1100.0, 1200.0, 1360.0}
    assert all(c.raw_watts is not None for c in GRID if c.profile is Profile.STATIC)


@given(st.data())
def test_the_winner_is_the_best_that_never_broke(data: st.DataObject) -> None:
    quality = dict(zip(GRID, data.draw(st.permutations(range(len(GRID)))), strict=True))
    breaks = set(data.draw(st.lists(st.sampled_from(GRID), max_size=len(GRID) - 1)))
    found = rounds(evaluating(lambda c, _s: 1.0 + quality[c] / 100, lambda c, _s: 0.97 if c in breaks else 0.96), GRID)
    best = max((c for c in GRID if c not in breaks), key=lambda c: quality[c])
    assert found[-1].kept[0].candidate == best
    assert [rung.seconds for rung in found] == [0.3, 0.6, 1.2]
    for before, after in itertools.pairwise(found):
        assert [t.candidate for t in after.trials] == [t.candidate for t in before.kept]
        assert len(after.trials) <= math.ceil(len(before.trials) / 3)


def test_what_breaks_only_the_longest_window_does_not_win() -> None:
    fast = GRID[3]
    found = rounds(
        evaluating(lambda c, _s: 1.3 if c == fast else 1.0, lambda c, s: 1.2 if c == fast and s > 1.0 else 0.9)
    )
    assert fast in [t.candidate for t in found[-1].trials]
    assert fast not in [t.candidate for t in found[-1].kept]
    assert found[-1].kept


@pytest.mark.parametrize("ratio", [1.0, math.nan])
def test_nothing_wins_where_all_break(ratio: float) -> None:
    found = rounds(evaluating(lambda _c, _s: 1.3, lambda _c, _s: ratio))
    assert len(found) == 1
    assert not found[-1].kept


def test_bad_searches_are_refused() -> None:
    never = evaluating(lambda _c, _s: 1.0, lambda _c, _s: 0.5)
    with pytest.raises(ValueError, match="do not see the window of 1 s"):
        next(halving(GRID, never, envelope=ENVELOPE, seconds=1.0))
    with pytest.raises(ValueError, match="nothing to try"):
        next(halving([], never, envelope=ENVELOPE, seconds=1.2))
    for bad in ({"sigma": 0.0}, {"sigma": 1.1}, {"raw_watts": 0.0}, {"clock_cap_hertz": math.inf}):
        with pytest.raises(ValueError, match="above 0"):
            Candidate(profile=Profile.FAST_LOOP, **bad)
    with pytest.raises(ValueError, match="needs 0 < duty"):
        Work(duty=0.5, kernel_s=0.0)


def test_times_add_up_not_speeds() -> None:
    works = [Work(duty=0.5, kernel_s=1e-3, weight=3.0), Work(duty=0.5, kernel_s=1e-3, weight=1.0)]
    assert weighted_speedup(works, [1.2, 1.0]) == pytest.approx(4.0 / (3.0 / 1.2 + 1.0))


def test_trials_on_the_part_are_repeatable_and_judged() -> None:
    loop = Loop(period_s=STEEP.period_s, dead_s=STEEP.dead_s, step_s=STEEP.step_s)
    works = (Work(duty=0.5, kernel_s=300e-6),)
    trials = Trials(chip=STEEP.chip, loop=loop, envelope=ENVELOPE, works=works, low=STEEP.activity_low, seed=7)
    of = [
        Candidate(profile=Profile.FAST_LOOP),
        Candidate(profile=Profile.FAST_LOOP, sigma=0.25),
        Candidate(profile=Profile.FAST_LOOP, clock_cap_hertz=1.7e9),
        Candidate(profile=Profile.STATIC, raw_watts=1360.0),
    ]
    full, shallow, capped, static = list(trials.run(of, 0.1))
    assert list(trials.run(of[:1], 0.1)) == [full]
    assert full.speedup > shallow.speedup > 1.0
    assert capped.speedup == pytest.approx(1.7 / 1.6, rel=1e-3)
    assert max(t.worst_ratio for t in (full, shallow, capped)) <= 0.96 * (1 + 1e-9)
    assert static.worst_ratio > 0.96  # two slow limits do not hold the windows of milliseconds


# ── what is stored ──────────────────────────────────────────────────────────────────────────────────────────────────

POINT = SetPoint(
    candidate=Candidate(profile=Profile.FAST_LOOP, sigma=0.5, raw_watts=1200.0),
    envelope=ENVELOPE.name,
    envelope_sha256=envelope_sha256(ENVELOPE),
    part="MI350X",
    firmware="04560D00",
    speedup=1.2,
    worst_ratio=0.96,
    seed=3,
    tuned_at_s=1000.0,
    expires_at_s=2000.0,
)


def test_what_was_stored_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "point.json"
    store_setpoint(path, replace(POINT, seed=1))
    named = replace(POINT, envelope="größer 😀", firmware="≥ 04560D00")
    store_setpoint(path, named)
    assert load_setpoint(path) == named
    store_setpoint(path, POINT)
    assert load_setpoint(path) == POINT
    assert [p.name for p in tmp_path.iterdir()] == ["point.json"]
    for nowhere in (tmp_path / "missing" / "point.json", path / "point.json", path.with_name("x" * 250)):
        with pytest.raises(ConfigError, match="cannot be written"):
            store_setpoint(nowhere, POINT)
    assert load_setpoint(path) == POINT


def test_a_pipe_or_a_device_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(ConfigError, match="not a regular file"):
        store_setpoint(pipe, POINT)
    assert pipe.is_fifo()
    assert [p.name for p in tmp_path.iterdir()] == ["pipe"]


def test_two_that_store_at_the_same_time_do_not_share_a_file(tmp_path: Path) -> None:
    # What another process has open is whatever it writes under its own process id.
    path, other = tmp_path / "point.json", tmp_path / ".point.json.1.new"
    other.write_text("half", encoding="utf-8")
    store_setpoint(path, POINT)
    assert other.read_text(encoding="utf-8") == "half"
    assert load_setpoint(path) == POINT


def test_killed_while_it_stores_leaves_the_old_set_point(tmp_path: Path) -> None:
    path = tmp_path / "point.json"
    store_setpoint(path, POINT)
    dies = (
        "import os, pathlib, signal, sys\n"
        "from fleetd.config.setpoint import load_setpoint, store_setpoint\n"
        "path = pathlib.Path(sys.argv[1])\n"
        "os.fsync = lambda _file: os.kill(os.getpid(), signal.SIGKILL)\n"
        "store_setpoint(path, load_setpoint(path))\n"
    )
    before = path.stat().st_ino
    ended = subprocess.run([sys.executable, "-c", dies, str(path)], check=False, capture_output=True)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert path.stat().st_ino == before
    assert load_setpoint(path) == POINT
    store_setpoint(path, replace(POINT, seed=9))
    assert load_setpoint(path).seed == 9


def test_a_set_point_that_was_cut_off_is_refused(tmp_path: Path) -> None:
    path, text = tmp_path / "point.json", setpoint_text(POINT)
    for length in range(0, len(text) - 1, 7):
        path.write_text(text[:length], encoding="utf-8")
        with pytest.raises(ConfigError):
            load_setpoint(path)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"raw_watts": 1200.0', '"raw_watts": 0.0', "raw_watts 0"),
        ('"raw_watts": 1200.0', '"raw_watts": 4294967295', "what a driver says for"),
        ('"raw_watts": 1200.0', '"raw_watts": 1200000', "milliwatts"),
        ('"clock_cap_hertz": null', '"clock_cap_hertz": 1700', "is it in megahertz"),
        ('"sigma": 0.5', '"sigma": 2', "sigma 2"),
        ('"sigma": 0.5', '"sigma": 0.5, "sigma": 0.4', "sigma"),
        ('"profile": "fast_loop"', '"profile": "fastest"', "none of fast_loop, static"),
        ('"firmware": "04560D00"', '"firmware": ""', "without them nobody knows"),
        ('"worst_ratio": 0.96', '"worst_ratio": 1.2', "broke its envelope"),
        ('"expires_at_s": 2000.0', '"expires_at_s": 10.0', "tuned_at_s < expires_at_s"),
        (POINT.envelope_sha256, "0", "64 hexadecimal digits"),
        ('"seed": 3,', '"seed": 3, "boost": true,', "boost"),
        ('"part": "MI350X",', "", "part"),
        ("PowerSetPoint", "PowerEnvelope", "PowerSetPoint"),
    ],
)
def test_a_damaged_set_point_is_refused_with_its_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "point.json"
    text = setpoint_text(POINT)
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(ConfigError, match=message) as caught:
        load_setpoint(path)
    assert caught.value.line is not None


def test_a_set_point_lapses_with_what_it_was_tuned_for() -> None:
    def why(**change: object) -> str | None:
        return lapsed(POINT, **{"envelope": ENVELOPE, "firmware": "04560D00", "now_s": 1500.0} | change)

    assert why() is None
    assert why(envelope=replace(ENVELOPE, reason="said otherwise", owner="another")) is None
    assert "envelope is no longer" in (why(envelope=module(0.03)) or "")
    assert "tuned for MI350X" in (why(envelope=replace(ENVELOPE, part="MI300X")) or "")
    assert "firmware 04560D00" in (why(firmware="04560D01") or "")
    assert "unknown" in (why(firmware=None) or "")
    assert why(now_s=2000.0) == "it has expired"
    assert "clock is wrong" in (why(now_s=999.0) or "")
    assert why(now_s=math.nan) is not None


# ── the command ─────────────────────────────────────────────────────────────────────────────────────────────────────

SHORT = """
apiVersion: fleetd/v1
kind: PowerEnvelope
metadata: {name: short, reason: windows that a test can afford, owner: tests}
spec:
  match: {vendor: amd, sku: MI350X}
  tbp_watts: 1000
  windows:
    - {over: 20us, max_ratio: 2.0, semantics: window_avg, source: a}
    - {over: 2ms, max_ratio: 1.3, semantics: window_avg, source: b}
    - {over: 20ms, max_ratio: 1.0, semantics: window_avg, source: c}
  margin: {sensor_gain: 0.03, model: 0.01}
  actuators: {amd: {ppt0_watts: [600, 1000], ppt1_watts: [1000, 1100]}}
  safe: {cap_watts: 800}
  lease: {ttl: 200ms, grace: 50ms}
"""


def tune(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["power", "tune", *arguments])


def test_tune_stores_the_winner_and_says_so(tmp_path: Path) -> None:
    envelope, stored, result = tmp_path / "short.yaml", tmp_path / "point.json", tmp_path / "result.json"
    envelope.write_text(SHORT, encoding="utf-8")
    asked = ("-e", str(envelope), "--firmware", "1", "--seconds", "0.03", "--rungs", "2", "--phase", "0.5", "3e-4", "1")
    ran = tune(*asked, "--store", str(stored), "--json", str(result))
    assert ran.exit_code == 0, ran.output
    body = json.loads(result.read_text(encoding="utf-8"))
    trials = [json.loads(line) for line in ran.stderr.splitlines()]
    assert len(trials) == sum(len(rung["trials"]) for rung in body["rungs"])
    point = load_setpoint(stored)
    assert point.speedup == body["set_point"]["speedup"] == max(t["speedup"] for t in body["rungs"][-1]["trials"])
    assert point.speedup > 1.0
    assert point.worst_ratio <= 0.96 * (1 + 1e-9)
    limits = read_envelope(envelope).envelope
    assert lapsed(point, envelope=limits, firmware="1", now_s=point.tuned_at_s) is None
    assert point.expires_at_s - point.tuned_at_s == pytest.approx(30 * 86400)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--part", "mi999"), "no such simulated part"),
        (("-e", "nowhere"), "there is no such file"),
        (("-e", "h200"), "it stands in for MI350X, h200 is for H200"),
        (("-e", "b200-1000"), "it stands in for MI350X"),  # of the same TBP, but another part
        (("--seconds", "0.5"), "do not see the window of 1 s"),
        (("--phase", "2", "1e-3", "1"), "needs 0 < duty"),
        (("--phase", "0.3", "1e-6", "1"), "in steps of 2e-05 s"),
        (("--phase", "0.1", "1", "1"), "a cycle of 10 s does not fit into the first trials of 0.3 s"),
        (("--phase", "0.5", "1e-3", "1", "--seconds", "60") * 40, "simulated samples a trial are more"),
        (("--seconds", "nan"), "is not a number"),
        (("--days", "nan"), "is not a number"),
        (("--firmware", " "), "names none"),
        (("--firmware", "1\n2"), "names none"),
        (("--firmware", "\udcff"), "names none"),
        (("--days", "1e-12"), "not in the range"),  # it would have expired when it is read
        (("--store", ""), "Is a directory"),
        (("--store", "/nowhere/point"), "No such file or directory; give --store"),
        (("--store", "/dev/null"), "Not a regular file"),
        (("--json", "/nowhere/x.json"), "No such file or directory; give --json"),
    ],
)
def test_bad_input_is_one_line_and_exit_2_before_anything_is_tried(arguments: tuple[str, ...], message: str) -> None:
    ran = tune("--firmware", "1", *arguments)
    assert ran.exit_code == 2
    assert message in ran.stderr
    assert len(ran.stderr.splitlines()) == 1
