"""The duty-cycle benchmark: its arithmetic, the simulated part, the real load in miniature, bad input."""

import json
import math
import os
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from burnin.load.plan import Plan, Point, parse
from burnin.load.sensors import integrate
from burnin.spec import SpecError
from fleetd.cli.power import command
from fleetd.compose.load import run_load
from fleetd.core.power.duty import Burst, boosts, interval
from fleetd.ports import BurnerError


def bench(*arguments: str) -> Result:
    return CliRunner().invoke(command, ["bench", *arguments])


def test_a_boost_is_relative_to_the_back_to_back_measurements_around_it() -> None:
    bursts = [
        Burst(repeat=0, point=None, rate=100.0),
        Burst(repeat=0, point=3, rate=132.0),
        Burst(repeat=0, point=None, rate=120.0),
        Burst(repeat=1, point=3, rate=130.0),  # only one behind it
        Burst(repeat=1, point=None, rate=100.0),
        Burst(repeat=2, point=3, rate=500.0),  # none in its repeat
        Burst(repeat=3, point=None, rate=100.0, limited="hot"),
        Burst(repeat=3, point=4, rate=500.0),
        Burst(repeat=4, point=4, rate=500.0, limited="hot"),
        Burst(repeat=4, point=None, rate=100.0),
        Burst(repeat=5, point=None, rate=100.0, work="small"),
        Burst(repeat=5, point=5, rate=500.0),  # none of its kind of work
    ]
    assert boosts(bursts) == {3: [pytest.approx(1.2), pytest.approx(1.3)]}


def test_the_interval_is_students() -> None:
    found = interval([1.0, 1.1, 1.2, 1.3, 1.4])
    assert found is not None
    # t(4, 95 %) = 2.776, s = 0.158114, n = 5
    assert found.high - found.mean == pytest.approx(2.776 * 0.158114 / math.sqrt(5), rel=1e-4)
    assert interval([]) is None
    alone = interval([1.0])
    assert alone is not None
    assert alone.low == -math.inf


@given(st.lists(st.floats(0.5, 2.0), min_size=2, max_size=30))
def test_the_interval_holds_its_mean(values: list[float]) -> None:
    found = interval(values)
    assert found is not None
    assert found.low <= found.mean <= found.high


def test_simulated_bench_boosts_keeps_the_envelope_and_draws(tmp_path: Path) -> None:
    paths = {name: tmp_path / f"bench.{name}" for name in ("json", "html", "png")}
    options = [word for name, path in paths.items() for word in (f"--{name}", str(path))]
    done = bench("--duty", "0.5", "--duty", "0.85", "--kernel", "300e-6", "--repeats", "2", *options)
    assert done.exit_code == 0, done.output
    body = json.loads(paths["json"].read_text())
    keys = {
        "duty",
        "period_s",
        "kernel_s",
        "boost",
        "boost_low",
        "boost_high",
        "power_watts",
        "clock_hertz",
        "violations",
    }
    assert all(keys <= set(point) for point in body["points"])
    assert [point["violations"] for point in body["points"]] == [0, 0]
    assert body["best"]["duty"] == 0.5
    assert 1.33 <= body["best"]["boost"] <= 1.376  # 2200/1600 MHz bounds it
    assert body["best"]["period_s"] == pytest.approx(600e-6)
    assert "best: 1.3" in done.output
    assert paths["png"].read_bytes().startswith(b"\x89PNG")
    assert "1.3" in paths["html"].read_text()
    assert not re.search(r"https?://", paths["html"].read_text())


def test_the_same_seed_gives_the_same_result() -> None:
    first, second = (bench("--duty", "0.6", "--kernel", "1e-3", "--repeats", "2", "--json", "-") for _ in range(2))
    assert json.loads(first.output)["points"] == json.loads(second.output)["points"]


def test_the_h200_boosts_under_its_own_limiter() -> None:
    words = ("--part", "h200", "--duty", "0.5", "--kernel", "5e-3", "--repeats", "2")
    done = bench(*words, "--json", "-")
    assert done.exit_code == 0, done.output
    body = json.loads(done.output)
    (point,) = body["points"]
    assert point["violations"] is None  # its firmware holds the power: no envelope was checked
    assert body["envelope"] is None
    assert 1.19 * 0.97 <= point["boost"] <= 1.20 * 1.03  # measured on one, within the fit's 3 %
    assert 1500e6 < point["clock_hertz"] <= 1980e6
    for_people = bench(*words)
    assert for_people.exit_code == 0, for_people.output
    assert "best: 1.2" in for_people.output
    assert "broke" not in for_people.output


def test_bursts_shorter_than_a_step_of_the_h200_have_a_clock() -> None:
    done = bench("--part", "h200", "--duty", "0.3", "--kernel", "100e-6", "--repeats", "1", "--json", "-")
    (point,) = json.loads(done.output)["points"]
    assert 1500e6 < point["clock_hertz"] <= 1980e6  # not 0: a clock that was not seen is absent


def test_a_slow_loop_loses_boost() -> None:
    found = [
        json.loads(
            bench("--duty", "0.5", "--kernel", "300e-6", "--repeats", "1", "--loop", period, "--json", "-").output
        )
        for period in ("1e-4", "5e-3")
    ]
    assert found[0]["best"]["boost"] - found[1]["best"]["boost"] > 0.1


def test_cpu_bench_runs_the_real_load(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    done = bench("--backend", "cpu", "--duty", "0.5", "--kernel", "2e-3", "--repeats", "2", "--seconds", "0.05",
                 "--json", str(path))  # fmt: skip
    assert done.exit_code == 0, done.output
    body = json.loads(path.read_text())
    assert body["points"][0]["boost"] > 0
    assert body["points"][0]["power_watts"] is None  # absent, not 0


BENCH = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs begin with it ignored
from fleetd.cli import main
main()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_bench_that_is_ended_leaves_no_load_behind(number: signal.Signals) -> None:
    words = ("power", "bench", "--backend", "cpu", "--repeats", "100", "--seconds", "30", "--json", "-")
    with subprocess.Popen(
        [sys.executable, "-c", BENCH, *words],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    ) as parent:  # fmt: skip
        children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
        deadline = time.monotonic() + 60
        while not (child := children.read_text().split()) and parent.poll() is None and time.monotonic() < deadline:
            select.select([], [], [], 0.01)
        load = os.pidfd_open(int(child[0]))
        try:
            parent.send_signal(number)
            ended, _, _ = select.select([load], [], [], 60)
        finally:
            os.close(load)
            parent.kill()
    assert ended


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--part", "nothing"], 2, "there are h200, mi350x-flat, mi350x-steep"),
        (["--kernel", "1", "--duty", "0.001", "--repeats", "1"], 2, "ask for shorter bursts"),
        (["--part", "h200", "--kernel", "1", "--duty", "1e-4", "--repeats", "1"], 2, "ask for shorter bursts"),
        (["--part", "h200", "--loop", "1e-3"], 2, "--loop: h200 runs under its vendor's own limiter"),
        (["--part", "h200", "-e", "mi350x-module"], 2, "--envelope: h200 runs under its vendor's own limiter"),
        (["--envelope", "nothing"], 2, "nothing"),
        (["--envelope", "b200-1000"], 2, "--part mi350x-steep: it stands in for MI350X, b200-1000 is for B200"),
        (["--kernel", "1e-6", "--duty", "0.3"], 2, "--kernel 1e-06: mi350x-steep is simulated in steps of 2e-05 s"),
        (["--kernel", "nan"], 2, "is not a number"),
        (["--duty", "nan"], 2, "is not a number"),
        (["--loop", "nan"], 2, "is not a number"),
        (["--loop", "3.3e-5"], 2, "no whole number of steps"),
        (["--backend", "cpu", "--low", "collective", "--repeats", "1"], 3, "no point could be measured"),
        (["--backend", "cuda", "--device", "99"], 3, "--device 99"),
        (["--html", "/nowhere/x.html"], 2, "give --html"),
        (["--png", "/nowhere/x.png"], 2, "give --png"),
        (["--json", "/nowhere/x.json"], 2, "give --json"),
    ],
)
def test_what_cannot_be_measured_is_said_in_one_line(arguments: list[str], code: int, says: str) -> None:
    done = bench(*arguments)
    assert done.exit_code == code, done.output
    assert says in done.stderr
    assert "Traceback" not in done.output


_GOOD = '"points": [{"duty": 0.5, "kernel_s": 0.1}]'


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"points": []}',
        '{"points": [{"duty": 0, "kernel_s": 1}]}',
        '{"points": [{"duty": true, "kernel_s": 1}]}',
        '{"points": [{"duty": NaN, "kernel_s": 0.1}]}',
        '{"points": [{"duty": 0.5, "kernel_s": 0.1, "low": "nap"}]}',
        f'{{{_GOOD}, "seconds": -1}}',
        f'{{{_GOOD}, "sekonds": 1}}',
    ],
)
def test_a_plan_is_checked_before_anything_starts(text: str) -> None:
    with pytest.raises(SpecError):
        parse(text)


def test_a_plan_is_read() -> None:
    plan = parse('{"points": [{"duty": 0.5, "kernel_s": 0.1, "low": "copy"}], "repeats": 3}')
    assert plan == Plan(points=(Point(duty=0.5, kernel_s=0.1, low="copy"),), repeats=3)


def test_a_load_that_ends_badly_says_why() -> None:
    with pytest.raises(BurnerError, match="1 to 1024"):
        list(run_load({"points": []}, backend="cpu", device=0))


def test_samples_are_integrated_by_trapezoids() -> None:
    assert integrate([(0.0, 100.0), (1.0, 300.0), (3.0, 300.0)]) == pytest.approx(200.0 + 600.0)
