"""What the training guard costs on one GPU, and whether it cries wolf: a GPT of 250 million parameters in bf16.

    python tests/bench/bench_guard.py --json guard.json        (about 5 minutes on an H200)
    python tests/bench/bench_guard.py --mode deterministic --only alarms --json alarms.json
    python tests/bench/bench_guard.py --mode steady --only overhead20 --json steady.json
    python tests/bench/bench_guard.py --device cpu --shrink 16 --batch 2 --only overhead20  (tries it; exit 3)

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
from guard_spans import Spans, table  # beside this script
from torch.nn import functional

from burnin.examples.models import Gpt
from burnin.guard import GuardConfig, ReplayGuard
from burnin.guard.hashes import Hasher

VOCABULARY, WIDTH, HEADS, LAYERS, TOKENS, BATCH = 50304, 1024, 16, 16, 1024, 8
MODES = ("default", "deterministic", "steady")
"""`steady`: default kernels, but for the checked steps (`GuardConfig.steady`)."""
PARTS = ("hash", "memory", "overhead20", "overhead500", "alarms")
SAVE_EVERY = 200
GIVE_UP = 20
"""Steps without a calibration."""
GRANULE = 512
"""Bytes: torch's caching allocator gives memory out in multiples of it."""
TARGETS = {"overhead_500": 0.01, "overhead_20": 0.12, "hash_ms": 0.5, "false_alarms": 0}


class Job:
    """One training job, with a guard that may be left out of any step."""

    def __init__(self, *, every: int, mode: str, size: int, batch: int, device: str) -> None:
        # As in `deterministic_settings`.
        deterministic = mode == "deterministic"
        self.cuda = device == "cuda"
        torch.use_deterministic_algorithms(deterministic)
        torch.backends.cuda.enable_cudnn_sdp(not deterministic)
        torch.backends.cudnn.deterministic = deterministic
        torch.manual_seed(1)
        layers = max(1, LAYERS // size)
        model = Gpt(
            vocabulary=VOCABULARY // size, width=WIDTH // size, heads=HEADS, layers=layers, tokens=TOKENS // size
        )
        self.model = model.to(device, torch.bfloat16)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True)
        config = GuardConfig(every=every, peer_every=10, steady=mode == "steady")
        self.guard = ReplayGuard(self.model, self.optimizer, config=config)
        self.ids = torch.randint(VOCABULARY // size, (64, batch, TOKENS // size + 1), device=device)
        self.number = 0

    def fn(self, batch: torch.Tensor) -> torch.Tensor:
        """Forward and backward."""
        logits = self.model(batch[:, :-1])
        loss = functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        return loss.detach()

    def steps(self, count: int, *, guarded: bool) -> float:
        """Seconds of so many steps."""
        self.wait()
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
        self.wait()
        return time.perf_counter() - begun_s

    def wait(self) -> None:
        """Until the device has done everything."""
        if self.cuda:
            torch.cuda.synchronize()

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


def breakdown(job: Job, step_ms: float) -> dict[str, Any]:
    """Where the time of a check goes, in the mean of as many checks as bring one exact test."""
    job.to_next_check()
    spans = Spans(job.guard)
    spans.on = True
    job.steps(job.guard.config.every * job.guard.config.peer_every, guarded=True)
    spans.on = False
    told = spans.told()
    extra_ms = told["all"]["device_ms"] - told["original"]["device_ms"]
    print(table(told), f"a check costs {extra_ms / step_ms:.2f} steps of {step_ms:.1f} ms", sep="\n", file=sys.stderr)
    return {"parts": told, "extra_ms": extra_ms, "extra_steps": extra_ms / step_ms}


def hash_ms(job: Job) -> dict[str, float]:
    """Time to fingerprint all gradients: on the device, and as the host waits for it."""
    hasher = Hasher(monotonic=time.monotonic, deadline_s=60.0)
    job.fn(job.ids[0].clone())
    grads = [parameter.grad for parameter in job.model.parameters()]
    hasher.values(grads, 1)
    device, host = [], []
    for seed in range(50):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(20_000_000)  # about 10 ms, so that the queueing by the host is not what is timed
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
    """Peak bytes of a checked step beyond those of a plain one.

    Allowed are one set of gradients, one micro-batch, and the original's loss, which is what the step returns: each as
    the allocator rounds it.
    """
    peaks = {}
    for guarded in (False, True):
        if guarded:
            while (job.guard.ledger.steps + 1) % job.guard.config.every:
                job.guard.ledger.steps += 1
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        job.steps(1, guarded=guarded)
        peaks[guarded] = torch.cuda.max_memory_allocated()
    allowed = {
        "gradients_bytes": sum(granules(parameter.nbytes) for parameter in job.model.parameters()),
        "micro_batch_bytes": granules(job.ids[0].nbytes),
        "loss_bytes": granules(2),
    }
    return {"extra_bytes": peaks[True] - peaks[False], "allowed_bytes": sum(allowed.values()), **allowed}


def granules(nbytes: int) -> int:
    """Bytes that the allocator takes for a tensor."""
    return -(-nbytes // GRANULE) * GRANULE


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
    costs = mode != "deterministic"
    told = report.setdefault(mode, {"batch": args.batch})
    parts = set(args.only) - ({"hash", "memory"} if args.device == "cpu" else set())

    def keep(name: str, value: Any) -> None:
        told[name] = value
        save()

    if parts & {"hash", "memory", "overhead20", "alarms"}:
        job = Job(every=20, mode=mode, size=args.shrink, batch=args.batch, device=args.device)
        job.to_next_check()
        told["parameters"] = sum(parameter.numel() for parameter in job.model.parameters())
        if costs and "hash" in parts:
            keep("hash_ms", hash_ms(job))
        if costs and "memory" in parts:
            keep("memory", memory(job))
            job.to_next_check()
        if costs and "overhead20" in parts:
            told["reproducible_share"] = job.guard.report()["calibration"]["share"]
            keep("overhead_20", overhead(job, window=100, pairs=args.pairs20))
            keep("check", breakdown(job, told["overhead_20"]["step_ms"]))
        if "alarms" in parts:
            alarms(job, steps=args.steps, save=lambda found: keep("alarms", found))
        del job
        torch.cuda.empty_cache()
    if "overhead500" in parts and costs:
        job = Job(every=500, mode=mode, size=args.shrink, batch=args.batch, device=args.device)
        job.to_next_check()
        keep("overhead_500", overhead(job, window=500, pairs=args.pairs))


def met(report: dict[str, Any]) -> dict[str, bool]:
    """Which targets are met, of those that were measured."""
    found = {}
    for mode in MODES:
        told = report.get(mode, {})
        for name in ("overhead_500", "overhead_20"):
            if name in told:
                found[f"{name}, {mode}"] = told[name]["median"] <= TARGETS[name]
        if "hash_ms" in told:
            found[f"hash, {mode}"] = told["hash_ms"]["host"] <= TARGETS["hash_ms"]
        if "memory" in told:
            found[f"memory, {mode}"] = told["memory"]["extra_bytes"] <= told["memory"]["allowed_bytes"]
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
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--json", default="-")
    args = parser.parse_args()
    if args.device == "cuda" and not torch.cuda.is_available():
        print("bench_guard: no GPU", file=sys.stderr)
        return 3
    gpu = torch.cuda.get_device_name() if args.device == "cuda" else None
    report: dict[str, Any] = {"gpu": gpu, "torch": torch.__version__}

    def save() -> None:
        report["met"] = met(report)
        if args.json != "-":
            Path(args.json).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")

    for mode in MODES[:2] if args.mode == "both" else (args.mode,):
        measure(mode, args, report, save)
    if args.json == "-":
        print(json.dumps(report, indent=1))
    if gpu is None:
        print("bench_guard: no GPU: the times mean nothing", file=sys.stderr)
        return 3
    return 0 if all(met(report).values()) else 1


if __name__ == "__main__":
    sys.exit(main())
