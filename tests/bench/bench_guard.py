"""What the training guard costs on one GPU, and whether it cries wolf: a GPT of 250 million parameters in bf16.

    python tests/bench/bench_guard.py --json guard.json        (about 5 minutes on an H200)
    python tests/bench/bench_guard.py --mode deterministic --only alarms --json alarms.json

Windows with and without the guard are interleaved, because a power-limited GPU drifts. The file is written after each
part and every 200 steps, so that a run that is cut off tells what it has seen.
"""
# ruff: noqa: T201 - a script prints its result

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
from torch.nn import functional

from burnin.examples.models import Gpt
from burnin.guard import GuardConfig, ReplayGuard
from burnin.guard.hashes import Hasher

VOCABULARY, WIDTH, HEADS, LAYERS, TOKENS, BATCH = 50304, 1024, 16, 16, 1024, 8
MODES = ("default", "deterministic")
PARTS = ("hash", "memory", "overhead20", "overhead500", "alarms")
SAVE_EVERY = 200
GIVE_UP = 20
"""Steps without a calibration."""
TARGETS = {"overhead_500": 0.01, "overhead_20": 0.12, "hash_ms": 0.5, "false_alarms": 0}


class Job:
    """One training job, with a guard that may be left out of any step."""

    def __init__(self, *, every: int, deterministic: bool, size: int, batch: int) -> None:
        # As in `deterministic_settings`.
        torch.use_deterministic_algorithms(deterministic)
        torch.backends.cuda.enable_cudnn_sdp(not deterministic)
        torch.backends.cudnn.deterministic = deterministic
        torch.manual_seed(1)
        layers = max(1, LAYERS // size)
        model = Gpt(
            vocabulary=VOCABULARY // size, width=WIDTH // size, heads=HEADS, layers=layers, tokens=TOKENS // size
        )
        self.model = model.to("cuda", torch.bfloat16)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True)
        self.guard = ReplayGuard(self.model, self.optimizer, config=GuardConfig(every=every, peer_every=10))
        self.ids = torch.randint(VOCABULARY // size, (64, batch, TOKENS // size + 1), device="cuda")
        self.number = 0

    def fn(self, batch: torch.Tensor) -> torch.Tensor:
        """Forward and backward."""
        logits = self.model(batch[:, :-1])
        loss = functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        return loss.detach()

    def steps(self, count: int, *, guarded: bool) -> float:
        """Seconds of so many steps."""
        torch.cuda.synchronize()
        begun_s = time.perf_counter()
        for _ in range(count):
            self.number += 1
            batch = self.ids[self.number % len(self.ids)].clone()
            self.optimizer.zero_grad(set_to_none=True)
            if guarded:
                self.guard.step(self.fn, batch)
            else:
                self.fn(batch)
            self.optimizer.step()
        torch.cuda.synchronize()
        return time.perf_counter() - begun_s

    def to_next_check(self) -> None:
        """Go on until the next guarded step is the first after a check."""
        while self.guard.ledger.steps % self.guard.config.every or self.guard.ledger.calibration is None:
            if self.guard.ledger.calibration is None and self.guard.ledger.steps > GIVE_UP:
                raise SystemExit(f"bench_guard: {self.guard.report_text()}")
            self.steps(1, guarded=True)


def overhead(job: Job, *, window: int, pairs: int) -> dict[str, Any]:
    """Guarded over plain seconds, minus 1, of interleaved windows; a window holds a whole number of checks."""
    ratios, plain_s = [], []
    for number in range(pairs):
        order = (False, True) if number % 2 else (True, False)
        seconds = {guarded: job.steps(window, guarded=guarded) for guarded in order}
        ratios.append(seconds[True] / seconds[False] - 1)
        plain_s.append(seconds[False] / window)
    return {"median": statistics.median(ratios), "all": ratios, "step_ms": 1e3 * statistics.median(plain_s)}


def hash_ms(job: Job) -> dict[str, float]:
    """Time to fingerprint all gradients: on the device, and as the host waits for it."""
    hasher = Hasher(monotonic=time.monotonic, deadline_s=60.0)
    job.fn(job.ids[0].clone())
    grads = [parameter.grad for parameter in job.model.parameters()]
    hasher.values(grads, 1)
    device, host = [], []
    for seed in range(50):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(2_000_000)  # so that the queueing by the host is not what is timed
        begin.record()
        hasher.begin(grads, seed)
        end.record()
        end.synchronize()
        device.append(begin.elapsed_time(end))
        begun_s = time.perf_counter()
        hasher.values(grads, seed)
        host.append(1e3 * (time.perf_counter() - begun_s))
    nbytes = sum(grad.nbytes for grad in grads if grad is not None)
    job.optimizer.zero_grad(set_to_none=True)
    return {"device": statistics.median(device), "host": statistics.median(host), "bytes": nbytes}


def memory(job: Job) -> dict[str, float]:
    """Peak bytes of a checked step beyond those of a plain one."""
    peaks = {}
    for guarded in (False, True):
        if guarded:
            while (job.guard.ledger.steps + 1) % job.guard.config.every:
                job.guard.ledger.steps += 1
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        job.steps(1, guarded=guarded)
        peaks[guarded] = torch.cuda.max_memory_allocated()
    gradients = sum(parameter.nbytes for parameter in job.model.parameters())
    return {"extra_bytes": peaks[True] - peaks[False], "allowed_bytes": gradients + job.ids[0].nbytes}


def alarms(job: Job, *, steps: int, save: Callable[[dict[str, Any]], None]) -> None:
    """Guard steps until so many are guarded, and say every 200 what was found; `save` takes it."""
    guard = job.guard
    while True:
        told = guard.report()
        found = told["findings"]
        save(
            {
                "steps": guard.ledger.steps,
                "verified": told["verified_steps"],
                "reproducible_share": told["calibration"]["share"],
                "checked": list(told["calibration"]["names"]),
                "not_reproducible": len(told["calibration"]["unstable"]),
                "operations": sorted({name for one in told["calibration"]["unstable"] for name in one["operations"]}),
                "unsound": told["calibration"]["unsound"],
                "unchecked": told["unchecked"],
                "notes": told["notes"],
                "alarms": [one for one in found if one["check"] != "unknown"],
                "information": [one for one in found if one["check"] == "unknown"],
            }
        )
        if guard.ledger.steps >= steps:
            return
        job.steps(min(SAVE_EVERY, steps - guard.ledger.steps), guarded=True)


def measure(mode: str, args: argparse.Namespace, report: dict[str, Any], save: Callable[[], None]) -> None:
    """Run the parts that are asked for in one mode."""
    deterministic, default = mode == "deterministic", mode == "default"
    told = report.setdefault(mode, {"batch": args.batch})
    parts = set(args.only)

    def keep(name: str, value: Any) -> None:
        told[name] = value
        save()

    if parts & {"hash", "memory", "overhead20", "alarms"}:
        job = Job(every=20, deterministic=deterministic, size=args.shrink, batch=args.batch)
        job.to_next_check()
        told["parameters"] = sum(parameter.numel() for parameter in job.model.parameters())
        if default and "hash" in parts:
            keep("hash_ms", hash_ms(job))
        if default and "memory" in parts:
            keep("memory", memory(job))
            job.to_next_check()
        if default and "overhead20" in parts:
            keep("overhead_20", overhead(job, window=100, pairs=args.pairs20))
        if "alarms" in parts:
            alarms(job, steps=args.steps, save=lambda found: keep("alarms", found))
        del job
        torch.cuda.empty_cache()
    if "overhead500" in parts and default:
        job = Job(every=500, deterministic=deterministic, size=args.shrink, batch=args.batch)
        job.to_next_check()
        keep("overhead_500", overhead(job, window=500, pairs=args.pairs))


def met(report: dict[str, Any]) -> dict[str, bool]:
    """Which targets are met, of those that were measured."""
    default = report.get("default", {})
    found = {
        name: default[name]["median"] <= TARGETS[name] for name in ("overhead_500", "overhead_20") if name in default
    }
    if "hash_ms" in default:
        found["hash"] = default["hash_ms"]["device"] <= TARGETS["hash_ms"]
    if "memory" in default:
        found["memory"] = default["memory"]["extra_bytes"] <= default["memory"]["allowed_bytes"]
    for mode in MODES:
        if "alarms" in report.get(mode, {}):
            found[f"no alarm, {mode}"] = len(report[mode]["alarms"]["alarms"]) <= TARGETS["false_alarms"]
    return found


def main() -> int:
    """Measure, write one JSON object; 0 when every target is met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mode", choices=(*MODES, "both"), default="both")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="costs: in the default mode")
    parser.add_argument("--steps", type=int, default=2000, help="guarded in each mode, which must raise no alarm")
    parser.add_argument("--pairs", type=int, default=2, help="of windows of 500 steps, a check every 500")
    parser.add_argument("--pairs20", type=int, default=5, help="of windows of 100 steps, a check every 20")
    parser.add_argument("--batch", type=int, default=BATCH, help="sequences of a step; fewer take less time")
    parser.add_argument("--shrink", type=int, default=1, help="divide the model's dimensions, to try the script")
    parser.add_argument("--json", default="-")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        print("bench_guard: no GPU", file=sys.stderr)
        return 3
    report: dict[str, Any] = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}

    def save() -> None:
        report["met"] = met(report)
        if args.json != "-":
            Path(args.json).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")

    for mode in MODES if args.mode == "both" else (args.mode,):
        measure(mode, args, report, save)
    if args.json == "-":
        print(json.dumps(report, indent=1))
    return 0 if all(met(report).values()) else 1


if __name__ == "__main__":
    sys.exit(main())
