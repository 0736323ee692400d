"""The measuring half of `bench_roofline.py`: the library's sustained time for each product on one GPU.

Products of one shape run back to back from a captured graph, so that the host is no part of the time, first until the
clock has settled, then in blocks timed by events; the median block counts. Reads clock, power and what holds the clock
back; sets nothing.
"""
# ruff: noqa: T201 - part of a script

import itertools
import json
import random
import statistics
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from roofline_shapes import Wanted

from burnin.load.sensors import Sensors, watching
from burnin.processes.readers import open_reader
from burnin.seed import fill_bits, fill_integers, fill_normal
from burnin.workloads.launches import strict_math
from burnin.workloads.plans import DTYPES

SETTLE_S, MEASURE_S, PROBE_S = 0.4, 0.25, 0.02
IDLE_S = 0.4
BLOCKS_MIN = 5
GRAPH_S = 0.01
"""Seconds of work in one graph, about."""
GRAPH_MAX = 200
"""Launches in one graph."""


def measure(
    todo: list[Wanted], *, backend: str, path: Path, deadline_s: float, seed: int, about: dict[str, str]
) -> dict[str, Any]:
    """Measure in random order until the deadline; what is measured so far is written after every shape.

    `about` goes into the report as it is: which set of shapes it is.
    """
    cuda = backend == "cuda"
    device = torch.device("cuda", 0) if cuda else torch.device("cpu")
    uuid = f"GPU-{torch.cuda.get_device_properties(0).uuid}" if cuda else ""
    sensors, reader = Sensors(uuid), open_reader(backend, uuid)
    report: dict[str, Any] = about | {
        "gpu": torch.cuda.get_device_name() if cuda else "cpu",
        "units": torch.cuda.get_device_properties(0).multi_processor_count if cuda else None,
        "driver": sensors.driver(),
        "torch": torch.__version__,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "settings": sensors.settings(),
        "copy_bytes_per_second": _copy_rate(device),
        "idle_watts": _idle_watts(sensors) if cuda else None,
        "points": [],
        "skipped": [],
    }
    began = time.perf_counter()
    for one in random.Random(seed).sample(todo, len(todo)):  # noqa: S311 - an order, no secret
        if time.perf_counter() - began > deadline_s:
            report["skipped"].append(one.name)
            continue
        try:
            report["points"].append(_point(one, device, reader, sensors))
        except (RuntimeError, torch.cuda.OutOfMemoryError) as error:  # this library refuses the shape: told, not hidden
            report["skipped"].append(f"{one.name}: {' '.join(str(error).split())[:160]}")
            continue
        print(_line(report["points"][-1]), file=sys.stderr, flush=True)
        path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    report["settings_kept"] = report["settings"] == sensors.settings()
    path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return report


def _point(one: Wanted, device: torch.device, reader: Any, sensors: Sensors) -> dict[str, Any]:
    """One product: the faster of its layouts, sustained."""
    with strict_math(tf32=one.dtype == "tf32"):
        batches = {name: Batch(launch, device) for name, launch in _layouts(one, device).items()}
        probe = {name: min(batch.blocks(PROBE_S)) for name, batch in batches.items()}
        layout = min(probe, key=probe.__getitem__)
        batches[layout].blocks(SETTLE_S)
        clocks, limits = [], set()

        def look() -> None:
            now = reader.sensors()
            clocks.append(now.sm_clock_hertz)
            limits.update(now.limits)

        with watching(sensors) as samples:
            blocks = batches[layout].blocks(MEASURE_S, look)
    seen = [clock for clock in clocks if clock is not None]
    return {
        "name": one.name,
        "kind": one.kind,
        "data": one.data,
        "dtype": one.dtype,
        "m": one.m,
        "n": one.n,
        "k": one.k,
        "output_bytes": _output(one).itemsize,
        "layout": layout,
        "seconds": statistics.median(blocks),
        "seconds_best": min(blocks),
        "clock_hertz": statistics.median(seen) if seen else None,
        "watts": statistics.fmean(watts for _, watts in samples) if samples else None,
        "limits": sorted(limits),
    }


def _output(one: Wanted) -> torch.dtype:
    """As a network would have it: 16 bits of 16 and 8 bits, 32 of integers."""
    return {"int8": torch.int32, "fp8e4m3": torch.bfloat16}.get(one.dtype, DTYPES[one.dtype])


def _layouts(one: Wanted, device: torch.device) -> dict[str, Callable[[], object]]:
    """Launches of a · b with b's rows or columns contiguous; the products of 8 bits take the latter only."""
    a, bt = (torch.empty(rows, one.k, dtype=DTYPES[one.dtype], device=device) for rows in (one.m, one.n))
    out = torch.empty(one.m, one.n, dtype=_output(one), device=device)
    for number, operand in enumerate((a, bt)):
        _fill(operand, one.data, number + 1)
    if one.dtype == "int8":
        return {"tn": lambda: torch._int_mm(a, bt.t(), out=out)}
    if one.dtype.startswith("fp8"):
        scale = torch.ones((), device=device)
        options: dict[str, Any] = {"scale_a": scale, "scale_b": scale, "out_dtype": out.dtype, "use_fast_accum": False}
        return {"tn": lambda: torch._scaled_mm(a, bt.t(), **options, out=out)}
    b = bt.t().contiguous()
    return {"tn": lambda: torch.mm(a, bt.t(), out=out), "nn": lambda: torch.mm(a, b, out=out)}


def _fill(operand: torch.Tensor, data: str, key: int) -> None:
    """Operand values of one kind."""
    match data:
        case "zeros":
            operand.zero_()
        case "ones":
            operand.fill_(1)
        case "integers":
            fill_integers(operand, key, 2)
        case "uniform":
            operand.uniform_(0, 1, generator=torch.Generator(operand.device).manual_seed(key))
        case "bits":
            fill_bits(operand, key)
            torch.nan_to_num_(operand, nan=0.0, posinf=0.0, neginf=0.0)
        case _ if operand.dtype is torch.int8:
            fill_bits(operand, key)
        case _:
            fill_normal(operand, key)


class Batch:
    """Some launches of one product, which run without the host: on a GPU a captured graph of them."""

    def __init__(self, launch: Callable[[], object], device: torch.device, *, graph: bool = True) -> None:
        """Warm up, and choose how many launches make a batch; without a graph, one."""
        self._cuda = device.type == "cuda"
        if not self._cuda or not graph:
            self._count, self._run = 1, launch
            return
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                launch()
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            launch()
            end.record()
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
        self._count = max(1, min(GRAPH_MAX, int(GRAPH_S / max(1e-6, begin.elapsed_time(end) / 1e3))))
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            for _ in range(self._count):
                launch()
        self._run = captured.replay

    def blocks(self, seconds: float, look: Callable[[], None] = lambda: None) -> list[float]:
        """Seconds a launch of each batch; they run for so long without a pause, the next is queued while one runs."""
        ends = [self._mark()]
        began = time.perf_counter()
        while time.perf_counter() - began < seconds or len(ends) <= BLOCKS_MIN:
            self._run()
            ends.append(self._mark())
            if self._cuda and len(ends) > 2:
                ends[-2].synchronize()
            look()
        if not self._cuda:
            return [(after - before) / self._count for before, after in itertools.pairwise(ends)]
        ends[-1].synchronize()
        return [before.elapsed_time(after) / 1e3 / self._count for before, after in itertools.pairwise(ends)]

    def _mark(self) -> Any:
        if not self._cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event


def _copy_rate(device: torch.device) -> float:
    """Bytes a second, read and written, of a copy on the device, of 2 GiB on a GPU; launched as `rate` launches it.

    From a graph the same copy moved 2.8 TB/s on an H200, launched one by one 4.3 TB/s.
    """
    size = 1 << 31 if device.type == "cuda" else 1 << 20
    source, target = (torch.empty(size, dtype=torch.uint8, device=device) for _ in range(2))
    source.fill_(1)
    batch = Batch(lambda: target.copy_(source), device, graph=False)
    return 2 * source.numel() / statistics.median(batch.blocks(MEASURE_S))


def _idle_watts(sensors: Sensors) -> float:
    """Watts without work but with the clocks still up, which is so for some seconds after work."""
    torch.cuda.synchronize()
    threading.Event().wait(IDLE_S)
    with watching(sensors) as samples:
        threading.Event().wait(IDLE_S)
    if not samples:
        raise SystemExit("bench_roofline: no power samples here; they are what the power model is fitted to")
    return statistics.fmean(watts for _, watts in samples)


def _line(point: dict[str, Any]) -> str:
    rate = 2 * point["m"] * point["n"] * point["k"] / point["seconds"] / 1e12
    clock = f"{point['clock_hertz'] / 1e6:.0f} MHz" if point["clock_hertz"] else "?"
    where = f"{point['dtype']} {point['m']}x{point['n']}x{point['k']} {point['layout']}"
    return f"{where}: {1e6 * point['seconds']:.1f} us, {rate:.1f} TFLOP/s, {clock}, {point['watts']} W"
