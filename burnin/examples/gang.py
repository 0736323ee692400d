"""The ranks of an example: forked on this machine, joined by gloo, each with its model, its data and its guard."""

import json
import multiprocessing
import os
import random
import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TextIO

import torch
import torch.distributed as dist
from torch import nn

from burnin.examples.faults import Planted, flip_at_rest
from burnin.examples.models import Task
from burnin.guard import GuardConfig, ReplayGuard

WORLD = 4
EVERY = 5
FAULT_AT = 12
"""Step after which the fault is planted."""
VICTIM, SOURCE = 2, 1
KINDS = {"chip": "chip-persistent", "link": "link", "software": "software", "memory": "memory"}
"""What `--inject` says → kind of `burnin.examples.faults`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What to run."""

    task: Task
    shape: str
    steps: int
    inject: str
    seed: int
    guarded: bool
    log: Path | None
    deadline_s: float


def run_job(job: Job) -> dict[str, Any] | None:
    """Run all ranks; return what rank 0 reports, or None when it did not: a rank failed, or the deadline passed."""
    context = multiprocessing.get_context("fork")  # torch is imported once; it has started no thread yet
    with tempfile.TemporaryDirectory(prefix="burnin-example-") as folder:
        ranks = [context.Process(target=_rank, args=(job, rank, Path(folder)), daemon=True) for rank in range(WORLD)]
        for one in ranks:
            one.start()
        for one in ranks:
            one.join(job.deadline_s)
        late = [one for one in ranks if one.is_alive()]
        for one in late:
            one.kill()
            one.join()
        result = Path(folder) / "result.json"
        if late or any(one.exitcode for one in ranks) or not result.exists():
            return None
        found: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
        return found


def _rank(job: Job, rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    store = dist.FileStore(str(folder / "store"), WORLD)  # type: ignore[attr-defined]  # it is not in __all__
    timeout = timedelta(seconds=job.deadline_s)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=WORLD, timeout=timeout)
    log = job.log.open("w", encoding="utf-8") if job.log is not None and rank == 0 else None
    try:
        report = _train(job, rank, log)
    finally:
        if log is not None:
            log.close()
    if rank == 0:
        (folder / "result.json").write_text(json.dumps(report), encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()


def _train(job: Job, rank: int, log: TextIO | None) -> dict[str, Any]:
    model = _spread(job.task.model(), job.shape)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    config = GuardConfig(every=EVERY, peer_every=1, deadline_s=job.deadline_s, seed=job.seed)
    guard = ReplayGuard(model, optimizer, config=config) if job.guarded else None
    stream = torch.Generator().manual_seed(job.seed * WORLD + rank)

    def fn(batch: Any) -> torch.Tensor:
        loss = job.task.loss(model, batch)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    kind = KINDS.get(job.inject, job.inject)
    planted = Planted(kind, rank=rank, victim=VICTIM, source=SOURCE, world=WORLD, seed=job.seed)
    step: Callable[[Any, Any], Any] = guard.step if guard is not None else lambda function, batch: function(batch)
    for number in range(1, job.steps + 1):
        batch = job.task.batch(stream)
        optimizer.zero_grad()
        with planted if number > FAULT_AT and kind not in {"none", "memory"} else nullcontext():
            loss = float(step(fn, batch))
        optimizer.step()
        if kind == "memory" and number == FAULT_AT and rank == VICTIM:
            mine = [getattr(one, "_local_tensor", one).detach() for one in model.parameters()]
            flip_at_rest(mine, random.Random(job.seed))  # noqa: S311 - where a fault strikes is no secret
        if log is not None:
            line = {"step": number, "loss": loss, "ne": job.task.normalised_entropy(loss, batch)}
            print(json.dumps(line), file=log, flush=True)
        if guard is not None and guard.ledger.findings:
            break
    return {"loss": loss, "guard": None if guard is None else guard.report(), "text": _text(guard)}


def _text(guard: ReplayGuard | None) -> str:
    return "not guarded" if guard is None else guard.report_text()


def _spread(model: nn.Module, shape: str) -> nn.Module:
    if shape == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    from torch.distributed.fsdp import fully_shard  # noqa: PLC0415 - torch 2.6 and later have it here

    for child in model.children():
        if isinstance(child, nn.ModuleList):
            for one in child:
                fully_shard(one)
    fully_shard(model)
    return model
