"""What a user may ask for, and how a mistake ends: one line, exit code 2 (or 3), no traceback, nothing written."""

import contextlib
import importlib.util
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnin.cli import main, run_command
from burnin.levels import LEVELS
from burnin.options import Options, check, check_inject, parse_devices, parse_inject, parse_seconds, select
from burnin.spec import Device, Inject, SpecError
from burnin.tests import TESTS, chosen

DEVICES = tuple(
    Device(gpu=f"GPU-{i}", index=2 * i, sku="s", sm_count=1, memory_bytes=1, vote_key="k") for i in range(4)
)


def test_inject_with_all_keys_and_with_defaults() -> None:
    assert parse_inject("gpu=5,fault=F03,rate=0.01,seed=7", seed=1) == Inject(gpu=5, fault="F03", rate=0.01, seed=7)
    assert parse_inject(" fault=F11.rows , gpu=0 ", seed=1) == Inject(gpu=0, fault="F11.rows", rate=1.0, seed=1)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not key=value"),
        ("gpu=1", "fault= is missing"),
        ("fault=F03", "gpu= is missing"),
        ("gpu=1,fault=F03,colour=red", "unknown key 'colour'"),
        ("gpu=1,gpu=2,fault=F03", "given twice"),
        ("gpu=one,fault=F03", "not a whole number"),
        ("gpu=-1,fault=F03", "not a whole number"),
        ("gpu=1,fault=F03,rate=0", "above 0"),
        ("gpu=1,fault=F03,rate=1.5", "above 0"),
        ("gpu=1,fault=F03,rate=nan", "above 0"),
        ("gpu=1,fault=F03,rate=often", "not a number"),
        ("gpu=1,fault=F03,seed=x", "not a whole number"),
        ("gpu=1,fault=", "not key=value"),
    ],
)
def test_a_bad_inject_is_one_line(text: str, why: str) -> None:
    with pytest.raises(SpecError, match=why) as caught:
        parse_inject(text, seed=1)
    assert "\n" not in str(caught.value)


@given(st.text(max_size=40))
def test_any_text_is_an_inject_or_a_spec_error(text: str) -> None:
    with contextlib.suppress(SpecError):
        assert 0 < parse_inject(text, seed=1).rate <= 1


def test_devices_by_index_or_id_keep_the_hosts_order() -> None:
    assert [device.index for device in select(DEVICES, parse_devices("GPU-3, 2"))] == [2, 6]
    assert select(DEVICES, ()) == DEVICES


@pytest.mark.parametrize(("text", "why"), [("5", "no device '5'"), ("2,GPU-1", "named before"), ("1,,2", "separated")])
def test_bad_devices(text: str, why: str) -> None:
    with pytest.raises(SpecError, match=why):
        select(DEVICES, parse_devices(text))


def test_a_fault_on_a_gpu_that_is_not_there() -> None:
    with pytest.raises(SpecError, match="gpu=1: no such GPU in this run; there are: 0, 2, 4, 6"):
        check_inject((Inject(gpu=1, fault="F03", rate=1.0, seed=1),), DEVICES)


@pytest.mark.parametrize("host", ["", "a b", "a/b", "a\nb", "a,b"])
def test_a_host_name_goes_into_ids(host: str) -> None:
    with pytest.raises(SpecError, match="--host"):
        check(Options(backend="sim", level="self", seed=1, host=host))


def test_levels_and_tests() -> None:
    assert [one.id for one in chosen("self", ())] == ["selftest", "health", "hostcpu"]
    longer = {"eigh", "hbm", "inductor", "overlap", "overlap.links", "pulse", "thermal"}
    assert [one.id for one in chosen("quick", ())] == [test for test in TESTS if test not in longer]
    assert {one.id for one in chosen("smoke", ())} < set(TESTS)
    assert [one.id for one in chosen("smoke", ["step"])] == ["selftest", "health", "step"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--level", "forever"], ["--level 'forever'", "self, smoke, quick, qualify, burnin, soak, idle"]),
        (["--for", "soon"], ["--for 'soon'", "4h"]),
        (["--for", "0s"], ["--for"]),
        (["--for", "31d"], ["--for", "30 days"]),
        (["--like", "/nonexistent"], ["--like /nonexistent", "No such file"]),
        (["--like", "/dev/null", "--level", "soak"], ["--like /dev/null", "no whole report"]),
        (["--resume", "/nonexistent/file"], ["--resume /nonexistent/file", "cannot be written"]),
        (["--exposure", "/dev/null"], ["--exposure /dev/null", "no regular file"]),
        (["--test", "gemm"], ["--test 'gemm'", "gemm.exact"]),
        (["--backend", "tpu"], ["--backend 'tpu'", "sim"]),
        (["--gpus", "0"], ["--gpus 0"]),
        (["--gpus", "many"], ["--gpus", "many"]),
        (["--seed", "-1"], ["--seed -1"]),
        (["--devices", "1,1"], ["--devices", "twice"]),
        (["--inject", "gpu=1,fault=F03,rate=0"], ["rate=0"]),
        (["--inject", "gpu=1,fault=F03", "--inject", "gpu=1,fault=F04"], ["gpu=1", "two faults"]),
        (["--colour"], ["--colour"]),
        (["--json", "/nonexistent/report.json"], ["--json /nonexistent/report.json", "cannot be written"]),
        (["--html", "/dev/null"], ["--html /dev/null", "no regular file"]),
        (["--resume", "/dev/zero"], ["--resume /dev/zero", "no regular file"]),
        (["--resume", "x", "--json", "x"], ["--resume", "name the same file"]),
        (["--exposure", "x", "--junit", "./x"], ["--exposure", "name the same file"]),
        (["--resume", "x", "--exposure", "x"], ["--exposure", "name the same file"]),
    ],
)
def test_bad_usage_is_one_line_and_exit_code_2(
    arguments: list[str], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "--backend", "sim", *arguments]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.splitlines()) == 1
    assert all(word in said.err for word in words)


def test_a_target_folder_and_a_shared_target_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--backend", "sim", "--json", str(tmp_path)]) == 2
    assert "is a directory" in capsys.readouterr().err
    both = str(tmp_path / "report")
    assert main(["run", "--backend", "sim", "--json", both, "--html", both]) == 2
    assert list(tmp_path.iterdir()) == []


def test_no_torch_is_not_judged_and_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert main(["run", "--backend", "sim"]) == 3
    assert "pip install 'fleetd[burnin]'" in capsys.readouterr().err


def test_list_names_every_test(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    tests, _, levels = capsys.readouterr().out.partition("\n\n")
    assert [line.split()[0] for line in tests.splitlines()] == list(TESTS)
    assert [line.split()[:2] for line in levels.splitlines()[1:]] == [
        [level.name, f"{level.seconds:.0f}"] for level in LEVELS.values()
    ]


@pytest.mark.parametrize(
    ("seconds", "tests", "why"),
    [
        (-1.0, ("hbm",), "give 0 to 1800 seconds"),
        (1801.0, ("hbm",), "give 0 to 1800 seconds"),
        (float("nan"), ("hbm",), "give 0 to 1800 seconds"),
        (60.0, (), "add --test hbm"),
        (60.0, ("int",), "add --test hbm"),
    ],
)
def test_a_retention_that_cannot_be_is_refused(seconds: float, tests: tuple[str, ...], why: str) -> None:
    with pytest.raises(SpecError, match=why):
        check(Options(backend="sim", level="self", seed=1, host="h", tests=tests, retention_s=seconds))


def test_retention_is_repeated_with_the_test_that_it_belongs_to() -> None:
    options = Options(backend="sim", level="self", seed=1, host="h", tests=("hbm", "int"), retention_s=60.0)
    check(options)
    assert "--retention 60" in options.command("hbm", backend="sim")
    assert "--retention" not in options.command("int", backend="sim")


@pytest.mark.parametrize(
    "options",
    [
        Options(backend="auto", level="qualify", seed=7, host="h01"),
        Options(backend="sim", level="soak", seed=(1 << 63) - 1, host="h01", gpus=3, seconds=5400.0),
        Options(
            backend="cuda",
            level="smoke",
            seed=0,
            host="h",
            tests=("hbm", "int"),
            devices=("0", "GPU-1"),
            retention_s=0.5,
        ),
        Options(backend="cpu", level="self", seed=1, host="h;$(x)", inject=(parse_inject("gpu=0,fault=F03", seed=9),)),
        Options(backend="cuda", level="idle", seed=1, host="h", seconds=0.125),
    ],
    ids=lambda options: options.level,
)
def test_the_command_of_a_run_asks_for_the_same_run(options: Options) -> None:
    backend = "cuda" if options.backend == "auto" else options.backend
    words = shlex.split(options.command(None, backend=backend))
    assert words[:3] == ["fleetd", "burnin", "run"]
    given = run_command.make_context("run", words[3:]).params
    asked = Options(
        backend=given["backend"],
        level=given["level"],
        seed=given["seed"],
        host=given["host"] or options.host,  # a GPU has its own name, whatever its host is called
        tests=given["tests"],
        gpus=given["gpus"],
        devices=parse_devices(given["devices"]) if given["devices"] else (),
        inject=tuple(parse_inject(text, seed=0) for text in given["injects"]),
        retention_s=given["retention"],
        seconds=parse_seconds(given["time"]) if given["time"] else None,
    )
    assert asked == replace(options, backend=backend)
