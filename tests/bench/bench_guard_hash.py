"""What it costs to fingerprint all gradients of a GPT, variants side by side in one run: host, device, both.

    python tests/bench/bench_guard_hash.py --json hash.json                (about 1 minute on an H200)
    python tests/bench/bench_guard_hash.py --shrink 32 --repeats 2         (anywhere; exit 3: no GPU, no figures)

`host` is how long the host takes to queue the work, while the device is kept busy; `device` is what the device then
takes for it; `both` is what a program waits that asks for the values on an idle device. The target is for `both` of
`many`, where the gradients lie where they have lain in one of the last steps, and of `many, moved`, where they do not.
All variants must give the same values.
"""
# ruff: noqa: T201 - a script prints its result

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from burnin import checksum as cs
from burnin.examples.models import Gpt
from burnin.guard.hashes import Hasher, Pending
from burnin.keys import MASK64
from burnin.seed import fill_bits

VOCABULARY, WIDTH, HEADS, LAYERS, TOKENS = 50304, 1024, 16, 16, 1024
SEED = 5
TARGET_MS = 0.5
SLEEP_CYCLES = 60_000_000
"""About 30 ms, in which the host queues what is timed."""
TRIED = ((1 << 13, 4096, 8), (1 << 14, 2048, 8), (1 << 14, 4096, 4), (1 << 15, 2048, 8), (1 << 15, 4096, 8))
"""(PIECE, BLOCK, WARPS) of `burnin.kernels.many`, besides its own."""
Work = Callable[[], Any]
"""Queues the work; returns a tensor of sums, or what a `Hasher` has begun."""


READER = Hasher(monotonic=time.monotonic, deadline_s=60.0)


def tensors(shrink: int, device: torch.device) -> tuple[torch.Tensor, list[torch.Tensor], list[torch.Tensor]]:
    """One flat buffer, views of it like those of a bucket, and the same as tensors of their own."""
    with torch.device("meta"):
        model = Gpt(
            vocabulary=VOCABULARY // shrink,
            width=WIDTH // shrink,
            heads=HEADS,
            layers=max(1, LAYERS // shrink),
            tokens=TOKENS // shrink,
        )
    sizes = [parameter.numel() for parameter in model.parameters()]
    flat = torch.empty(sum(sizes), dtype=torch.bfloat16, device=device)
    fill_bits(flat.view(torch.int16), 1)
    views = list(torch.split(flat, sizes))
    return flat, views, [view.clone() for view in views]


def one_by_one(those: Sequence[torch.Tensor]) -> torch.Tensor:
    """The checksum of each tensor, launch by launch."""
    slots = torch.empty(len(those), dtype=torch.int64, device=those[0].device)
    for number, tensor in enumerate(those):
        cs.checksum_into(slots[number : number + 1], tensor, SEED)
    return slots


def moved(hasher: Hasher, those: Sequence[torch.Tensor]) -> Pending:
    """As the guard does it where the device has to be told all addresses: what it knows of them is forgotten before."""
    for plan in hasher._plans.values():
        plan.rows = type(plan.rows)(len(plan.tables))
    return hasher.begin(those, SEED)


def tuned(hasher: Hasher, those: Sequence[torch.Tensor], numbers: tuple[int, int, int]) -> Pending:
    """The same with other constants, each with plans of its own."""
    from burnin.kernels import many as kernels  # noqa: PLC0415 - imports triton

    own = kernels.PIECE, kernels.BLOCK, kernels.WARPS
    kernels.PIECE, kernels.BLOCK, kernels.WARPS = numbers
    try:
        return hasher.begin(those, SEED)
    finally:
        kernels.PIECE, kernels.BLOCK, kernels.WARPS = own


def variants(shrink: int, device: torch.device) -> tuple[dict[str, Work], int]:
    """Everything that is compared, and the bytes of it."""
    flat, views, apart = tensors(shrink, device)
    other = torch.empty_like(flat)
    slot = torch.empty(1, dtype=torch.int64, device=device)

    def hasher() -> Hasher:
        return Hasher(monotonic=time.monotonic, deadline_s=60.0)

    def whole() -> torch.Tensor:
        cs.checksum_into(slot, flat, SEED)
        return slot

    own, of_views, other_places = hasher(), hasher(), hasher()
    works: dict[str, Work] = {
        "copy": lambda: other.copy_(flat),
        "flat": whole,
        "one by one": lambda: one_by_one(apart),
        "many": lambda: own.begin(apart, SEED),
        "many, moved": lambda: moved(other_places, apart),
        "many, views of one buffer": lambda: of_views.begin(views, SEED),
    }
    if device.type == "cuda":
        for numbers in TRIED:
            one = hasher()
            name = "many, piece {} block {} warps {}".format(*numbers)
            works[name] = lambda numbers=numbers, one=one: tuned(one, apart, numbers)  # type: ignore[misc]
    return works, flat.nbytes


def timed(work: Work) -> dict[str, float]:
    """Milliseconds of one run on a GPU."""
    asleep, begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(3))
    torch.cuda.synchronize()
    asleep.record()
    torch.cuda._sleep(SLEEP_CYCLES)
    begin.record()
    begun_s = time.perf_counter()
    work()
    host_s = time.perf_counter() - begun_s
    end.record()
    end.synchronize()
    begun_s = time.perf_counter()
    result = work()
    if isinstance(result, Pending):
        READER.read([result])
    elif result.dtype is torch.int64:
        result.tolist()
    else:
        torch.cuda.synchronize()
    both_s = time.perf_counter() - begun_s
    # A device that had to wait for the host would be timed by the host.
    assert 1e3 * host_s < asleep.elapsed_time(begin), "the host takes longer than the device is kept busy"
    return {"host": 1e3 * host_s, "device": begin.elapsed_time(end), "both": 1e3 * both_s}


def timed_on_cpu(work: Work) -> dict[str, float]:
    """Milliseconds of one run where all is the host's."""
    begun_s = time.perf_counter()
    work()
    return {"host": 1e3 * (time.perf_counter() - begun_s)}


def measure(works: dict[str, Work], nbytes: int, repeats: int, *, cuda: bool) -> dict[str, Any]:
    """Interleaved; the first runs compile. Medians."""
    for work in works.values():
        work()
    found: dict[str, list[dict[str, float]]] = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            found[name].append(timed(work) if cuda else timed_on_cpu(work))
    told = {}
    for name, runs in found.items():
        told[name] = {f"{key}_ms": statistics.median(one[key] for one in runs) for key in runs[0]}
        moved = 2 * nbytes if name == "copy" else nbytes
        time_ms = told[name].get("device_ms", told[name]["host_ms"])
        told[name]["bytes_per_second"] = moved / (1e-3 * time_ms)
    return told


def values(works: dict[str, Work]) -> dict[str, list[int]]:
    """What each variant of the checksums by tensor computes."""
    found = {}
    for name, work in works.items():
        if name not in {"copy", "flat"}:
            result = work()
            pending = isinstance(result, Pending)
            found[name] = READER.read([result]) if pending else [value & MASK64 for value in result.tolist()]
    return found


def main() -> int:
    """Measure and write one JSON object; 0: same values, target met; 1: not; 3: no GPU."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shrink", type=int, default=1, help="divide the model's dimensions")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--json", default="-", help="where to write (default: standard output)")
    args = parser.parse_args()
    cuda = torch.cuda.is_available()
    works, nbytes = variants(args.shrink, torch.device("cuda", 0) if cuda else torch.device("cpu"))
    sums = values(works)
    same = all(one == sums["one by one"] for one in sums.values())
    found = measure(works, nbytes, args.repeats, cuda=cuda)
    report = {
        "gpu": torch.cuda.get_device_name() if cuda else None,
        "torch": torch.__version__,
        "bytes": nbytes,
        "tensors": len(sums["one by one"]),
        "same_values": same,
        "variants": found,
        "target_ms": TARGET_MS,
        "met": cuda and max(found[name]["both_ms"] for name in ("many", "many, moved")) <= TARGET_MS,
    }
    text = json.dumps(report, indent=1)
    if args.json == "-":
        print(text)
    else:
        Path(args.json).write_text(text + "\n", encoding="utf-8")
    if not same:
        return 1
    if not cuda:
        print("bench_guard_hash: no GPU: the values were compared, the times mean nothing", file=sys.stderr)
        return 3
    return 0 if report["met"] else 1


if __name__ == "__main__":
    sys.exit(main())
