"""What the training guard costs on one GPU, and whether it cries wolf: a GPT of 250 million parameters in bf16.

    python tests/bench/bench_guard.py --json guard.json        (about 5 minutes on an H200)
    python tests/bench/bench_guard.py --mode default --seconds 40 --steps 1000 --json default.json   (100 seconds)
    python tests/bench/bench_guard.py --mode deterministic --only alarms --json alarms.json
    python tests/bench/bench_guard.py --device cpu --shrink 16 --batch 2 --only overhead  (tries it; exit 3)

Blocks with and without the guard are interleaved, see `guard_blocks`: a check every 20 steps is measured, one every 500
derived from what a check costs and what the steps between checks do. Guarded steps of these blocks count among those
that must raise no alarm. The file is written after each part and every 200 steps, so that a run that is cut off tells
what it has seen.
"""
# ruff: noqa: T201 - a script prints its result

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
from guard_blocks import blocks, overhead, overheads  # beside this script
from guard_peak import difference, peak_of
from guard_spans import Spans, table
from torch.nn import functional

from burnin.examples.models import Gpt
from burnin.guard import GuardConfig, ReplayGuard
from burnin.guard.hashes import Hasher

VOCABULARY, WIDTH, HEADS, LAYERS, TOKENS, BATCH = 50304, 1024, 16, 16, 1024, 8
MODES = ("default", "deterministic", "steady")
"""`steady`: default kernels, but for the checked steps (`GuardConfig.steady`)."""
PARTS = ("hash", "memory", "overhead", "alarms")
SAVE_EVERY = 200
GIVE_UP = 20
"""Steps without a calibration."""
GRANULE = 512
"""Bytes: torch's caching allocator gives memory out in multiples of it."""
PEER_EVERY = 10
"""Checks to one with exact tests."""
NEVER = 1 << 40
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
        config = GuardConfig(every=every, peer_every=PEER_EVERY, steady=mode == "steady")
        self.guard = ReplayGuard(self.model, self.optimizer, config=config)
        self.ids = torch.randint(VOCABULARY // size, (64, batch, TOKENS // size + 1), device=device)
        self.number = 0
        self.guarded = 0
        """Steps with the guard, but for those of which none is ever checked."""

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
                self.guarded += self.guard.config.every != NEVER
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

    def checks(self, count: int) -> None:
        """So many checks, in every other step: those between are passed over, as if they had been."""
        self.to_next_check()
        for _ in range(count):
            self.guard.ledger.steps += self.guard.config.every - 2
            self.steps(2, guarded=True)

    def block(self, kind: str) -> tuple[float, str]:
        """Run `every` steps: plain, with the check in the last one, or guarded and quiet. See `guard_blocks.blocks`."""
        config, ledger = self.guard.config, self.guard.ledger
        before = self.guard._checks, len(ledger.findings), len(ledger.notes), sum(ledger.unchecked.values())
        if kind == "quiet":
            self.guard.config = replace(config, every=NEVER)
        seconds = self.steps(config.every, guarded=kind != "plain")
        self.guard.config = config
        after = self.guard._checks, len(ledger.findings), len(ledger.notes), sum(ledger.unchecked.values())
        if kind == "check" and not after[0] % config.peer_every:
            kind = "exact"
        as_meant = after == (before[0] + (kind in {"check", "exact"}), *before[1:])
        return seconds, kind if as_meant else "odd"


def costs(job: Job, *, seconds: float) -> dict[str, Any]:
    """What a check costs and what the steps between do, after a warm-up in which everything has run once."""
    job.checks(PEER_EVERY)
    job.block("plain")
    every = job.guard.config.every
    found = blocks(job.block, least=PEER_EVERY, seconds=seconds, monotonic=time.monotonic)
    try:
        return overheads(found, every=every, peer_every=PEER_EVERY) | {"measured_every": every}
    except ValueError as error:
        raise SystemExit(f"bench_guard: {error}: {job.guard.report_text()}") from None


def breakdown(job: Job, step_ms: float) -> dict[str, Any]:
    """Where the time of a check goes, in the mean of as many checks as bring one exact test."""
    job.to_next_check()
    spans = Spans(job.guard)
    spans.on = True
    job.checks(PEER_EVERY)
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


def memory(job: Job) -> dict[str, Any]:
    """Peak bytes of a checked step beyond those of a plain one, and what was there at the two peaks.

    Allowed are one set of gradients, one micro-batch, and the original's loss, which is what the step returns: as they
    are asked for, and as the allocator rounds each. `more` and `less` say by size what a checked step has at its peak.
    """

    def checked() -> None:
        job.guard.ledger.steps += job.guard.config.every - 1
        job.steps(1, guarded=True)

    job.to_next_check()
    found = difference(peak_of(lambda: job.steps(1, guarded=False)), peak_of(checked))
    parts = [parameter.nbytes for parameter in job.model.parameters()]
    rest = {"micro_batch": job.ids[0].nbytes, "loss": torch.bfloat16.itemsize}
    return {
        **found,
        "allowed_bytes": sum(map(granules, [*parts, *rest.values()])),
        "allowed_requested_bytes": sum([*parts, *rest.values()]),
        "gradients_bytes": sum(parts),
        **{f"{name}_bytes": nbytes for name, nbytes in rest.items()},
    }


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
                "steps": job.guarded,
                "checks": guard._checks,
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
        if job.guarded >= steps:
            return
        job.steps(min(SAVE_EVERY, steps - job.guarded), guarded=True)


def measure(mode: str, args: argparse.Namespace, report: dict[str, Any], save: Callable[[], None]) -> None:
    """Run the parts that are asked for in one mode."""
    costly = mode != "deterministic"
    told = report.setdefault(mode, {"batch": args.batch})
    parts = set(args.only) - ({"hash", "memory"} if args.device == "cpu" else set())

    def keep(name: str, value: Any) -> None:
        told[name] = value
        save()

    job = Job(every=args.every, mode=mode, size=args.shrink, batch=args.batch, device=args.device)
    job.to_next_check()
    told["parameters"] = sum(parameter.numel() for parameter in job.model.parameters())
    if costly and "hash" in parts:
        keep("hash_ms", hash_ms(job))
    if costly and "memory" in parts:
        job.checks(2)  # what is made once has been made
        keep("memory", memory(job))
    if costly and "overhead" in parts:
        told["reproducible_share"] = job.guard.report()["calibration"]["share"]
        keep("costs", costs(job, seconds=args.seconds))
        for every in (20, 500):
            keep(f"overhead_{every}", overhead(told["costs"], every))
        keep("check", breakdown(job, told["costs"]["step_ms"]))
    if "alarms" in parts:
        job.to_next_check()
        alarms(job, steps=args.steps, save=lambda found: keep("alarms", found))


def met(report: dict[str, Any]) -> dict[str, bool]:
    """Which targets are met, of those that were measured."""
    found = {}
    for mode in MODES:
        told = report.get(mode, {})
        for name in ("overhead_500", "overhead_20"):
            if name in told:
                found[f"{name}, {mode}"] = told[name] <= TARGETS[name]
        if "hash_ms" in told:
            found[f"hash, {mode}"] = told["hash_ms"]["host"] <= TARGETS["hash_ms"]
        if "memory" in told:
            one = told["memory"]
            found[f"memory, {mode}"] = one["extra_bytes"] <= one["allowed_bytes"]
            found[f"memory as asked for, {mode}"] = one["extra_requested_bytes"] <= one["allowed_requested_bytes"]
        if "alarms" in told:
            found[f"no alarm in {told['alarms']['steps']} steps, {mode}"] = (
                len(told["alarms"]["alarms"]) <= TARGETS["false_alarms"]
            )
    return found


def main() -> int:
    """Measure, write one JSON object; 0 when every target is met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mode", choices=(*MODES, "both"), default="both")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="costs: in the default mode")
    parser.add_argument("--steps", type=int, default=2000, help="guarded in each mode, which must raise no alarm")
    parser.add_argument("--seconds", type=float, default=60.0, help="of blocks side by side, after the warm-up")
    parser.add_argument("--every", type=int, default=20, help="steps of a block; other than 20 to try the script")
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
