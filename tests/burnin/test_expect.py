"""`expect` on the command line: what it prints and writes, and how it refuses."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from burnin.cli import main
from burnin.expect import SCHEMA, bytes_of, shape_of
from burnin.spec import SpecError

GEMM = ("expect", "--part", "h200", "--gemm", "8192x8192x8192")
COLLECTIVE = ("expect", "--part", "h200", "--collective", "all_reduce", "--bytes", "256MiB", "--gpus", "8")


def test_a_product_is_told_with_its_bound_its_steps_and_what_it_rests_on(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(GEMM) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "bound by power limit" in lines[0]
    assert "132 units at 1.98 GHz" in lines[1]
    assert any("whole waves" in line for line in lines)
    assert any(line.startswith("  fitted to ") and "driver 580" in line for line in lines)


def test_an_unmeasured_part_gives_a_ceiling_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["expect", "--part", "MI300X", "--gemm", "4096x4096x4096", "--dtype", "fp8"]) == 0
    out = capsys.readouterr().out
    assert "a ceiling: nothing was measured on AMD Instinct MI300X; no GPU is judged by it" in out
    assert "L2 bandwidth, power" in out


def test_the_json_holds_the_same_and_goes_where_it_is_asked_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "e.json"
    assert main([*GEMM, "--json", str(path)]) == 0
    report = json.loads(path.read_text())
    assert (report["schema"], report["kind"]) == (SCHEMA, "gemm")
    assert report["verified"]["driver"].startswith("580.159")
    assert report["expected"]["bound"] == "power limit"
    assert report["expected"]["flops_per_second"] == pytest.approx(2 * 8192**3 / report["expected"]["seconds"])
    capsys.readouterr()
    assert main([*COLLECTIVE, "--json", "-"]) == 0
    out, err = capsys.readouterr()
    told = json.loads(out)
    assert (told["kind"], told["expected"]["gpus"], told["expected"]["size_bytes"]) == ("collective", 8, 256 << 20)
    assert "bound by links" in err


def test_power_data_and_cold_operands_are_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    def rate(*more: str) -> float:
        assert main(["expect", "--part", "h200", "--gemm", "16x8192x8192", *more, "--json", "-"]) == 0
        return float(json.loads(capsys.readouterr().out)["expected"]["flops_per_second"])

    assert rate("--cold") < rate()
    assert rate("--watts", "300") < rate("--data", "zeros")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "--part"),
        (["--part", "a100", "--gemm", "8x8x8"], "there are b200, h100, h200, mi300x, mi325x, mi350x, mi355x"),
        (["--part", "h200"], "either --gemm MxNxK or --collective"),
        ([*GEMM[1:], "--collective", "all_reduce"], "either --gemm MxNxK or --collective"),
        (["--part", "h200", "--gemm", "8x8"], "three sizes are wanted"),
        (["--part", "h200", "--gemm", "8x-8x8"], "three sizes are wanted"),
        (["--part", "h200", "--gemm", "0x8x8"], "sizes are 1 to"),
        (["--part", "h200", "--gemm", "8x8x" + "9" * 400], "sizes are 1 to"),
        (["--part", "h200", "--gemm", "8x8x8", "--dtype", "fp4"], "there are bf16, fp16"),
        (["--part", "mi355x", "--gemm", "8x8x8", "--dtype", "tf32"], "there are bf16, fp16"),
        (["--part", "h200", "--gemm", "8x8x8", "--data", "noise"], "there are normal, zeros"),
        (["--part", "h200", "--gemm", "8x8x8", "--watts", "-5"], "a power limit is above zero"),
        (["--part", "h200", "--gemm", "8x8x8", "--watts", "nan"], "a power limit is above zero"),
        (["--part", "h200", "--gemm", "8x8x8", "--json", "/nowhere/e.json"], "cannot be written"),
        (["--part", "h200", "--collective", "all_reduce"], "needs --bytes SIZE and --gpus N"),
        (["--part", "h200", "--collective", "gossip", "--bytes", "1", "--gpus", "2"], "there are all_reduce"),
        (["--part", "h200", "--collective", "all_reduce", "--bytes", "1XB", "--gpus", "2"], "a size is a number"),
        (["--part", "h200", "--collective", "all_reduce", "--bytes", "0", "--gpus", "2"], "1 to"),
        (["--part", "h200", "--collective", "all_reduce", "--bytes", "1", "--gpus", "99"], "2 to 8"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["expect", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert told in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "size"),
    [("1", 1), ("4096", 4096), ("256MiB", 256 << 20), ("1 GB", 10**9), ("8KiB", 8192), ("3B", 3), ("2kB", 2000)],
)
def test_sizes(text: str, size: int) -> None:
    assert bytes_of(text) == size


@pytest.mark.parametrize("text", ["", "MiB", "-1", "1.5GiB", "1 TiB", "1e9", "\N{SUPERSCRIPT TWO}"])
def test_sizes_that_are_none(text: str) -> None:
    with pytest.raises(SpecError):
        bytes_of(text)


def test_shapes() -> None:
    assert shape_of("4096X14336x4096") == (4096, 14336, 4096)


def test_it_needs_no_torch_in_its_own_process_and_fleetd_hands_over() -> None:
    code = "import sys; from burnin.cli import main; main(sys.argv[1:]); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, *GEMM], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"
    command = [sys.executable, "-m", "fleetd", "burnin", *GEMM]
    handed = subprocess.run(command, capture_output=True, text=True, check=True)
    assert handed.stdout == done.stdout.rpartition("False")[0]
