"""The benchmark of the model: its split is a rule, its fit never sees what is held out, and it writes what it found."""

import importlib.util
import json
import math
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from burnin.parts import shelf
from burnin.parts.reading import parse
from burnin.roofline.gemm import expect
from burnin.roofline.kernels import OPERAND_BYTES, Gemm
from tests.burnin.roofline_parts import complete

FITTED = complete().fitted
BENCH = Path(__file__).parents[1] / "bench"
NAMES = (
    *("roofline_shapes", "roofline_search", "roofline_points", "roofline_power", "roofline_fit"),
    "bench_roofline",
)


@pytest.fixture(scope="module")
def bench() -> Iterator[SimpleNamespace]:
    """The benchmark's modules, which import each other as scripts of one folder do."""
    before = {name: sys.modules.get(name) for name in NAMES}
    loaded: dict[str, ModuleType] = {}
    for name in NAMES:
        spec = importlib.util.spec_from_file_location(name, BENCH / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        loaded[name] = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(loaded[name])
    yield SimpleNamespace(**loaded)
    for name, module in before.items():
        if module is None:
            del sys.modules[name]
        else:
            sys.modules[name] = module


def measured(bench: SimpleNamespace, *, noise: float = 0.02, todo: Sequence[Any] = ()) -> dict[str, Any]:
    """What a machine that obeys the model would have measured, with some noise."""
    part, rng = complete(), random.Random(5)  # noqa: S311 - noise, no secret
    points = []
    for one in todo or bench.roofline_shapes.wanted():
        if one.dtype != "bf16" or one.data not in {"normal", "zeros"}:
            continue
        gemm = Gemm(m=one.m, n=one.n, k=one.k, dtype=one.dtype, output_bytes=OPERAND_BYTES[one.dtype])
        told = expect(part, gemm, data=one.data)
        assert told.watts is not None
        points.append(
            {
                **{name: getattr(one, name) for name in ("name", "kind", "data", "dtype", "m", "n", "k")},
                "output_bytes": gemm.output_bytes,
                "seconds": told.seconds * rng.lognormvariate(0, noise),
                "clock_hertz": told.clock_hertz * rng.gauss(1, noise / 2),
                "watts": told.watts * rng.gauss(1, noise),
            }
        )
    about = {"gpu": "a model", "date": "2026-11-30", "driver": "1", "torch": "2"}
    return about | {"copy_bytes_per_second": 4.2e12, "idle_watts": 150.0, "points": points}


def test_enough_shapes_of_each_class_are_held_out_by_a_rule(bench: SimpleNamespace) -> None:
    todo = bench.roofline_shapes.wanted()
    held = [one for one in todo if bench.roofline_shapes.held_out(one.name)]
    assert len({one.name for one in todo}) == len(todo) >= 150
    assert len(held) >= 100
    assert Counter(one.dtype for one in held)["bf16"] >= 50
    assert all(Counter(one.kind for one in held)[kind] >= 15 for kind in ("square", "llm", "irregular"))
    known = {"bf16 4096x4096x4096": False, "bf16 8192x8192x8192": True, "fp16 8192x8192x8192": True}
    assert {name: bench.roofline_shapes.held_out(name) for name in known} == known  # the rule must never change


def test_the_fresh_set_has_siblings_of_every_class_and_nothing_that_was_seen(bench: SimpleNamespace) -> None:
    shapes = bench.roofline_shapes
    new, seen = shapes.fresh(), [one for one in shapes.wanted() if one.data == "normal"]
    assert new == shapes.fresh() != shapes.fresh(seed=1)
    assert 55 <= len({one.name for one in new}) == len(new) <= 70
    assert not {one.name for one in new} & {one.name for one in seen}
    for of in ("kind", "dtype"):
        was, now = (Counter(getattr(one, of) for one in some) for some in (seen, new))
        assert all(abs(now[key] / len(new) - was[key] / len(seen)) < 0.03 for key in was), of
    assert all(one.m == one.n == one.k for one in new if one.kind == "square")
    assert all(not size % 16 for one in new if one.dtype in {"fp8e4m3", "int8"} for size in (one.m, one.n, one.k))
    odd = sum(one.k % 8 > 0 or one.n % 8 > 0 for one in new) / len(new)
    assert odd == pytest.approx(sum(one.k % 8 > 0 or one.n % 8 > 0 for one in seen) / len(seen), abs=0.06)


def test_all_of_the_fresh_set_is_scored_and_none_of_it_fitted(bench: SimpleNamespace, tmp_path: Path) -> None:
    report = measured(bench, noise=0.0, todo=bench.roofline_shapes.fresh()) | {"set": "fresh"}
    assert not bench.roofline_points.is_few(report)
    part = complete()
    assert bench.roofline_fit.errors(part, report, held=False) == {}
    found = bench.roofline_fit.errors(part, report, held=True)["all"]
    assert len(found) == len(report["points"])
    assert max(abs(error) for error, _ in found) < 1e-6  # of the very model that it was measured on
    path = tmp_path / "fresh.json"
    path.write_text(json.dumps(report), encoding="utf-8")
    script = [sys.executable, BENCH / "bench_roofline.py", "--fit", path, "--part", "h200"]
    done = subprocess.run(script, capture_output=True, text=True, check=False, cwd=BENCH.parents[1], timeout=100)
    assert done.returncode == 2
    assert "the fresh set is for the score alone" in done.stderr
    target = tmp_path / "h200.yaml"
    target.write_text((Path(shelf.__file__).parent / "h200.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    script = [sys.executable, BENCH / "bench_roofline.py", "--score", path, "--part", "h200", "--into", target]
    done = subprocess.run(script, capture_output=True, text=True, check=False, cwd=BENCH.parents[1], timeout=100)
    assert f"({len(found)} held-out shapes)" in done.stdout
    assert done.returncode == ("targets: met" not in done.stdout)
    before, after = shelf.load("h200").fitted, parse(target.read_text(encoding="utf-8"), "h200.yaml").fitted
    assert before is not None
    assert after is not None
    assert after.copy_share == 0.875  # measured with the fresh set
    assert after == replace(before, error_p90=after.error_p90, copy_share=after.copy_share)


def test_the_search_finds_the_least_and_computes_again_only_what_changed(bench: SimpleNamespace) -> None:
    asked: list[str] = []

    def term(name: str, least: float) -> Any:
        def error(values: dict[str, float]) -> float:
            asked.append(name)
            return abs(math.log(values[name] / least))

        return bench.roofline_search.Term(names=(name,), error=error)

    loss = bench.roofline_search.summed([term("a", 3.0), term("b", 0.2)])
    start = {"a": 1.0, "b": 1.0}
    assert loss(start) == loss(start)
    assert asked == ["a", "b"]
    loss(start | {"a": 2.0})
    assert asked == ["a", "b", "a"]
    found = bench.roofline_search.search(start, loss, 30, lambda _: None)
    assert found == {"a": pytest.approx(3.0, rel=0.02), "b": pytest.approx(0.2, rel=0.02)}
    kept = bench.roofline_search.search(start, loss, 5, lambda _: None, names=("b",))
    assert kept["a"] == 1.0


def test_the_fit_recovers_a_machine_that_obeys_the_model_on_shapes_it_did_not_see(bench: SimpleNamespace) -> None:
    report = measured(bench)
    part = shelf.load("h200")
    fitted = bench.roofline_fit.fit(part, report, rounds=3, say=lambda _: None)
    found = bench.roofline_fit.errors(replace(part, fitted=fitted), report, held=True)
    told = bench.roofline_fit.summary(found["all"])
    assert told["count"] >= 20
    assert told["median"] < 0.08
    assert told["p90"] < 0.25
    assert fitted.dtypes.keys() == {"bf16"}
    assert fitted.clock_hertz == pytest.approx(1.78e9, rel=0.05)


def test_what_is_held_out_changes_nothing_in_the_fit(bench: SimpleNamespace) -> None:
    report = measured(bench)
    assert len(report["points"]) >= bench.roofline_points.FEW
    other = json.loads(json.dumps(report))
    for point in other["points"]:
        if bench.roofline_shapes.held_out(point["name"]) and point["data"] == "normal":
            point["seconds"] *= 3.0
            point["watts"] = 1.0
    part = shelf.load("h200")
    first, second = (bench.roofline_fit.fit(part, one, rounds=1, say=lambda _: None) for one in (report, other))
    assert first == second
    scored = bench.roofline_fit.errors(replace(part, fitted=first), other, held=True)
    assert bench.roofline_fit.summary(scored["all"])["median"] > 1.0


def test_the_block_that_is_written_is_read_again_and_the_rest_of_the_file_stays(bench: SimpleNamespace) -> None:
    for name in ("h200", "mi300x"):
        before = (Path(shelf.__file__).parent / f"{name}.yaml").read_text(encoding="utf-8")
        assert FITTED is not None
        fitted = replace(FITTED, dtypes={"bf16": FITTED.dtypes["bf16"]}, power=None)
        after = bench.bench_roofline.put(before, bench.bench_roofline.written(fitted))
        part = parse(after, name)
        assert part.fitted == fitted
        assert replace(part, fitted=None) == replace(shelf.load(name), fitted=None)
        assert bench.bench_roofline.put(after, bench.bench_roofline.written(shelf.load(name).fitted)) == before


def test_few_points_are_never_taken_for_a_score(bench: SimpleNamespace, tmp_path: Path) -> None:
    facts = Path(__file__).parents[1] / "golden" / "h200-gemm-facts.json"
    assert bench.roofline_points.is_few(json.loads(facts.read_text()))
    target = tmp_path / "h200.yaml"
    target.write_text((Path(shelf.__file__).parent / "h200.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    arguments = ["--fit", facts, "--part", "h200", "--rounds", "2", "--into", target]
    script = [sys.executable, BENCH / "bench_roofline.py", *arguments]
    done = subprocess.run(script, capture_output=True, text=True, check=False, cwd=BENCH.parents[1], timeout=250)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "no score" in done.stdout
    written = parse(target.read_text(encoding="utf-8"), "h200.yaml").fitted
    assert written is not None
    assert written.error_p90 is None
    assert written.verified.points == 17


def test_the_measuring_half_runs_and_writes_what_the_fit_reads(bench: SimpleNamespace, tmp_path: Path) -> None:
    """On the CPU: what it measures there means nothing."""
    out = tmp_path / "cpu.json"
    arguments = ["--measure", out, "--backend", "cpu", "--size-max", "512"]
    script = [sys.executable, BENCH / "bench_roofline.py", *arguments]
    done = subprocess.run(script, capture_output=True, text=True, check=False, cwd=BENCH.parents[1], timeout=250)
    assert done.returncode == 0, done.stderr[-2000:]
    report = json.loads(out.read_text())
    points = bench.roofline_points.points_of(report)
    assert {point.name for point in points} == {"bf16 256x256x256", "bf16 512x512x512"}
    assert all(point.seconds > 0 and point.clock_hertz is None for point in points)
    assert (report["set"], report["skipped"]) == ("first", [])
    assert report["copy_bytes_per_second"] > 0
