"""How well the analytical model of matrix products predicts the vendor's library: measure, fit, score.

    python tests/bench/bench_roofline.py --measure h200.json              # on a GPU, three minutes; sets nothing
    python tests/bench/bench_roofline.py --fit h200.json --part h200 --into burnin/parts/h200.yaml
    python tests/bench/bench_roofline.py --score h200.json --part h200    # exit code 1: a target is missed
    python tests/bench/bench_roofline.py --measure fresh.json --only fresh          # 60 shapes that no fit takes
    python tests/bench/bench_roofline.py --score fresh.json --part h200 --into burnin/parts/h200.yaml

The fit sees the shapes that `roofline_shapes.held_out` leaves it; the score is of the others, at the clock that the
model itself predicts. `--fit … --into` writes the block `fitted` of the part's file, the held-out p90 error in it.

How far a score can be believed: the constants never saw the held-out shapes, but the model was changed after their
worst errors had been printed once (long int8 products, odd sizes), so that score flatters it, though each change was
made for what fitted shapes showed. The score of the set `fresh`, drawn from a seed and all held out, is free of that
until somebody changes the model for it; then take another seed.
"""
# ruff: noqa: T201 - a script prints its result

import argparse
import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from roofline_fit import TARGETS, copy_share, errors, fit, summary
from roofline_points import is_few, is_fresh
from roofline_search import ROUNDS
from roofline_shapes import fresh, held_out, wanted

from burnin.parts import shelf
from burnin.parts.part import Fitted, Part

BEFORE, AFTER = "fitted:", "peer_fitted:"
"""Keys of a part's file between which the block stands."""
SETS = {"first": wanted, "fresh": fresh}
WORST = 8
"""Shapes that are named beside the score."""


def score(part: Part, report: dict[str, Any], *, held: bool) -> dict[str, dict[str, float]]:
    """Print the errors by class and the worst shapes; return the summaries."""
    found = errors(part, report, held=held)
    told = {group: summary(some) for group, some in sorted(found.items())}
    which = "held-out" if held and not is_few(report) else "fitted"
    print(f"{which} shapes of {part.name} ({report['gpu']}, {report['date']}):")
    for group, one in told.items():
        print(
            f"  {group:10} {one['count']:4.0f}  median {100 * one['median']:5.1f} %  p90 {100 * one['p90']:5.1f} %"
            f"  bias {100 * one['bias']:+5.1f} %"
        )
    for error, point in sorted(found["all"], key=lambda item: -abs(item[0]))[:WORST]:
        print(
            f"    {100 * error:+6.1f} %  {point.name}  measured {point.gemm.flops / point.seconds / 1e12:.1f} TFLOP/s"
        )
    return told


def written(fitted: Fitted | None) -> str:
    """The block as YAML: numbers with four digits."""

    def text(value: Any, depth: int) -> str:
        if isinstance(value, dict):
            inner = (f"{'  ' * depth}{key}:{text(one, depth + 1)}" for key, one in value.items())
            return "\n" + "\n".join(inner)
        if isinstance(value, tuple):
            return f" {json.dumps([list(one.values()) if isinstance(one, dict) else one for one in value])}"
        if isinstance(value, float):
            return f" {_plain(value)}"
        return " null" if value is None else f" {json.dumps(value)}"

    return f"{BEFORE}{text(asdict(fitted) if fitted is not None else None, 1)}\n"


def _plain(value: float) -> str:
    """A float that YAML reads as one."""
    short = f"{value:.4g}"
    if "e" in short:
        digits, _, power = short.partition("e")
        return f"{digits if '.' in digits else digits + '.0'}e{int(power):+d}"
    return short if "." in short else short + ".0"


def put(text: str, block: str) -> str:
    """A part's file with another block."""
    head, _, rest = text.partition(f"\n{BEFORE}")
    _, _, tail = rest.partition(f"\n{AFTER}")
    return f"{head}\n{block}{AFTER}{tail}"


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--measure", type=Path, metavar="JSON", help="measure on the first GPU")
    what.add_argument("--fit", type=Path, metavar="JSON", help="fit to the shapes that are not held out, and score")
    what.add_argument("--score", type=Path, metavar="JSON", help="score the part's file as it is")
    parser.add_argument("--only", choices=SETS, default="first", help="which set of shapes to measure")
    parser.add_argument("--backend", choices=("cuda", "cpu"), default="cuda", help="cpu: to try the measuring half")
    parser.add_argument("--size-max", type=int, default=1 << 20, help="leave out products with a larger m, n or k")
    parser.add_argument("--part", help="name of the part")
    parser.add_argument("--into", type=Path, help="file of the part, whose block `fitted` is replaced")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="passes of the search")
    parser.add_argument("--deadline", type=float, default=165.0, help="seconds after which no further shape is begun")
    parser.add_argument("--seed", type=int, default=1, help="of the order of the shapes")
    args = parser.parse_args()
    if args.measure is None and args.part is None:
        parser.error("--fit and --score need --part")
    return args


def main() -> int:
    """Measure, fit or score."""
    args = arguments()
    if args.measure is not None:
        return measured(args)
    report = json.loads((args.fit or args.score).read_text(encoding="utf-8"))
    part = shelf.load(args.part)
    if args.fit is not None:
        if is_fresh(report):
            print("bench_roofline: the fresh set is for the score alone; --fit wants the first", file=sys.stderr)
            return 2
        fitted = fit(part, report, rounds=args.rounds, say=lambda text: print(text, file=sys.stderr))
        part = replace(part, fitted=fitted)
        score(part, report, held=False)
    elif part.fitted is None:
        print(f"bench_roofline: {part.name} has no fitted constants; use --fit", file=sys.stderr)
        return 2
    assert part.fitted is not None
    copied = copy_share(part, report)  # a measurement, not a fit: the newest counts
    part = replace(part, fitted=replace(part.fitted, copy_share=part.fitted.copy_share if copied is None else copied))
    assert part.fitted is not None
    told = score(part, report, held=True)["all"]
    # Where the fit saw everything, its errors say nothing about other shapes.
    block = written(replace(part.fitted, error_p90=None if is_few(report) else round(told["p90"], 3)))
    if args.into is not None:
        args.into.write_text(put(args.into.read_text(encoding="utf-8"), block), encoding="utf-8")
    elif args.fit is not None:
        print(block)
    if is_few(report):
        print("no score: too few points to hold any out; the fit saw them all")
        return 0
    missed = [
        f"{name} {100 * told[name]:.1f} % > {100 * limit:.0f} %"
        for name, limit in TARGETS.items()
        if told[name] > limit
    ]
    print(f"targets: {'; '.join(missed) or 'met'} ({told['count']:.0f} held-out shapes)")
    return 1 if missed else 0


def measured(args: argparse.Namespace) -> int:
    """Run the measuring half, which needs torch and a GPU."""
    import torch  # noqa: PLC0415 - fitting and scoring do without
    from roofline_measure import measure  # noqa: PLC0415

    if args.backend == "cuda" and not torch.cuda.is_available():
        print("bench_roofline: no GPU", file=sys.stderr)
        return 3
    todo = [one for one in SETS[args.only]() if max(one.m, one.n, one.k) <= args.size_max]
    if args.backend == "cpu":
        todo = [one for one in todo if not one.dtype.startswith("fp8")]  # takes minutes there
    held = len(todo) if args.only == "fresh" else sum(held_out(one.name) for one in todo)
    print(f"{len(todo)} products, {held} of them held out", file=sys.stderr)
    about = {"set": args.only}
    report = measure(
        todo, backend=args.backend, path=args.measure, deadline_s=args.deadline, seed=args.seed, about=about
    )
    print(
        f"{len(report['points'])} measured, {len(report['skipped'])} skipped, settings kept: {report['settings_kept']}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
