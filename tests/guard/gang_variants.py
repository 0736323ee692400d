"""Three ranks that train with and without the guard in every way that DDP and FSDP2 offer. Started by the tests.

    python tests/guard/gang_variants.py STORE

Prints one JSON object a variant, from rank 0. Three ranks, because a third is rounded.
"""

import json
import multiprocessing
import os
import sys
from collections import UserDict
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel

from burnin.guard import GuardConfig, ReplayGuard

WORLD, STEPS = 3, 9
VARIANTS = (
    *("plain ddp", "bucket views", "static graph", "unused", "hook given", "hook unknown", "accumulation"),
    *("fsdp2", "fsdp2 accumulation", "fsdp2 unsharded accumulation", "unknown batch"),
)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(8, 24), nn.BatchNorm1d(24), nn.Linear(24, 4)
        self.drop, self.spare = nn.Dropout(0.2), nn.Linear(3, 3)
        self.use_spare = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.second(self.drop(torch.relu(self.norm(self.first(x)))))
        return out + self.spare(x[:, :3]).sum() if self.use_spare else out


def build(variant: str) -> nn.Module:
    torch.manual_seed(2)
    net = Net()
    net.use_spare = variant != "unused"
    if variant.startswith("fsdp2"):
        from torch.distributed.fsdp import fully_shard  # noqa: PLC0415

        for layer in (net.first, net.second):
            fully_shard(layer)
        fully_shard(net)
        return net
    options: dict[str, Any] = {
        "bucket views": {"gradient_as_bucket_view": True},
        "static graph": {"static_graph": True},
        "unused": {"find_unused_parameters": True},
    }.get(variant, {})
    model = DistributedDataParallel(net, bucket_cap_mb=0.001, **options)
    if variant == "hook unknown":
        model.register_comm_hook(None, fp16_compress_hook)
    return model


def train(variant: str, rank: int, *, guarded: bool) -> tuple[list[float], dict[str, Any]]:
    model = build(variant)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    step: Any = lambda fn, batch: fn(batch)  # noqa: E731
    guard = None
    if guarded:
        hook = (None, fp16_compress_hook) if variant == "hook given" else None
        config = GuardConfig(every=2, peer_every=2, deadline_s=200.0)
        guard = ReplayGuard(model, optimizer, config=config, comm_hook=hook)
        step = guard.step
    elif variant == "hook given":
        model.register_comm_hook(None, fp16_compress_hook)  # type: ignore[operator]
    # Two ranks with the same data and one with others: who replays with its own convicts the third.
    which = min(rank, 1) if variant == "unknown batch" else rank
    stream, losses = torch.Generator().manual_seed(which), []
    torch.manual_seed(9)

    def fn(batch: Any) -> torch.Tensor:
        batch = batch["both"] if isinstance(batch, UserDict) else batch
        loss = nn.functional.mse_loss(model(batch[0]), batch[1])
        loss.backward()
        return loss.detach()

    micro = 2 if "accumulation" in variant else 1
    for _ in range(STEPS):
        optimizer.zero_grad()
        for number in range(micro):
            last = number == micro - 1
            quiet: Any = nullcontext()
            if variant == "accumulation" and not last:
                quiet = model.no_sync()  # type: ignore[operator]
            if variant == "fsdp2 unsharded accumulation":
                model.set_requires_gradient_sync(last)  # type: ignore[operator]
            batch: Any = torch.randn(4 + which, 8, generator=stream), torch.randn(4 + which, 4, generator=stream)
            batch = UserDict(both=batch) if variant == "unknown batch" else batch
            with quiet:
                losses.append(float(step(fn, batch)))
        optimizer.step()
    return losses, {} if guard is None else guard.report()


def job(rank: int, store: str) -> None:
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group(
        "gloo", store=dist.FileStore(store, WORLD), rank=rank, world_size=WORLD, timeout=timedelta(seconds=200)
    )
    for variant in VARIANTS:
        plain, _ = train(variant, rank, guarded=False)
        guarded, report = train(variant, rank, guarded=True)
        if rank == 0:
            told = {"variant": variant, "same": plain == guarded, "report": report}
            print(json.dumps(told), flush=True)  # noqa: T201
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    ranks = [context.Process(target=job, args=(rank, sys.argv[1])) for rank in range(WORLD)]
    for one in ranks:
        one.start()
    for one in ranks:
        one.join()
    sys.exit(max(abs(one.exitcode or 0) for one in ranks))
