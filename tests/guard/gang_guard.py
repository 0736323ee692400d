"""Ranks that run many trials of planted faults under the guard, in one process group. Started by the tests and benches.

    python tests/guard/gang_guard.py STORE TRIALS SEED WORLD:SHAPE[,SHAPE]:KIND[,KIND]...

Prints one JSON object a trial (rank 0). On CPU with gloo; with GUARD_DEVICE=cuda on as many GPUs with NCCL.
"""

import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from burnin.examples.faults import Planted, flip_at_rest
from burnin.guard import GuardConfig, ReplayGuard
from burnin.guard.learn import Learner

WIDTH = 16
DEADLINE_S = 240.0
"""Of the process group that trains; the guard's own waits are shorter, so that they end first."""
RIGHT = {
    "none": None,
    "chip-transient": "chip-transient",
    "chip-persistent": "chip-persistent",
    "memory": "memory",
    "optimizer": "memory",
    "link": "link",
    "copy": "link",
    "software": "software-nondeterminism",
    "loader": "software-nondeterminism",
}
"""Kind of fault → the class that it must be given."""
NOBODY = frozenset({"software", "loader"})
PAIR = 2
DEVICE = os.environ.get("GUARD_DEVICE", "cpu")


def mistake(told: dict[str, Any]) -> str:
    """What is wrong with the verdict of a trial; "" when it is right."""
    kind, found = told["kind"], told["found"]
    want = RIGHT[kind]
    if want is None:
        return f"a clean step gave {found}" if found else ""
    # Of two ranks that differ after a collective, though every transfer between them is right, none is to blame.
    nobody = kind in NOBODY or (kind == "copy" and told["world"] == PAIR)
    culprit = None if nobody else told["victim"]
    if [one[:2] for one in found] != [[want, culprit]]:
        return f"{told['shape']} {kind} seed {told['seed']}: wanted {want} on {culprit}, got {found}"
    return ""


def run_trials(
    folder: Path, *gangs: tuple[int, str, list[str]], trials: int, seed: int,
    told: list[dict[str, Any]] | None = None, limit_s: float = 3000,
) -> list[dict[str, Any]]:  # fmt: skip
    """Start gangs, one after the other from one process, wait for them, return what they told.

    Args:
        folder: for their meeting point.
        gangs: (ranks, shapes with commas between, kinds of faults).
        trials: of each kind.
        seed: of the trials.
        told: gets what is returned even when a gang fails or takes too long.
        limit_s: for all of them.
    """
    told = [] if told is None else told
    lines = [f"{world}:{shapes}:{','.join(kinds)}" for world, shapes, kinds in gangs]
    script = [sys.executable, __file__, str(folder / "store"), str(trials), str(seed), *lines]
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root), "FLEETD_GUARD_SOCKET": str(folder / "none")}
    with subprocess.Popen(
        script, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=root, env=environment,
        start_new_session=True,
    ) as ranks:  # fmt: skip
        try:
            out, err = ranks.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(ranks.pid, signal.SIGKILL)
            out, err = ranks.communicate()
            err = f"stopped after {limit_s:g} s. {err}"
        except BaseException:  # whoever ends us does not know of their group
            os.killpg(ranks.pid, signal.SIGKILL)
            raise
    told += [json.loads(line) for line in out.splitlines() if line.endswith("}")]
    err = "\n".join(line for line in err.splitlines() if not line.startswith("GuardFinding("))
    # The first error is the cause; the last ones are of ranks that waited for it.
    assert ranks.returncode == 0, f"after {len(told)} trials: {err[:6000]} … {err[-2000:]}"
    return told


def model_of(shape: str) -> nn.Module:
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(WIDTH, 32), nn.GELU(), nn.Linear(32, WIDTH), nn.GELU(), nn.Linear(WIDTH, 8))
    model.to(DEVICE)
    if shape == "ddp":
        return nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.002)
    if shape in {"fsdp2", "hsdp"}:
        from torch.distributed.fsdp import fully_shard  # noqa: PLC0415

        world = dist.get_world_size()
        sizes = (2, world // 2) if shape == "hsdp" else (world,)
        mesh = dist.init_device_mesh(DEVICE, sizes, mesh_dim_names=("replicas", "shards")[-len(sizes) :])
        for layer in (model[0], model[2], model[4]):
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    return model


class Rig:
    """One rank's training job, whose state can be put back between trials."""

    def __init__(self, shape: str, *, rank: int, world: int, peer_every: int = 1) -> None:
        self.rank, self.world, self.shape = rank, world, shape
        self.model = model_of(shape)
        self.dies = self.calls = 0
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        config = GuardConfig(every=2, peer_every=peer_every, deadline_s=DEADLINE_S / 2, anomalies=False)
        self.guard = ReplayGuard(self.model, self.optimizer, config=config)
        self.data = torch.Generator().manual_seed(100 + rank)
        self.loader: Any = None
        for _ in range(4):
            self.step()
        assert self.guard.ledger.calibration is not None, self.guard.report_text()
        self.calibration = self.guard.ledger.calibration
        self.kept = [tensor.clone() for tensor in self.state()]

    def state(self) -> list[torch.Tensor]:
        """Parameters and optimizer state that lie here."""
        found = [parameter.detach() for parameter in self.model.parameters()]
        for parameter in self.optimizer.param_groups[0]["params"]:
            state = self.optimizer.state[parameter]
            found += [state["exp_avg"], state["exp_avg_sq"]]
        return [getattr(tensor, "_local_tensor", tensor) for tensor in found]

    def reset(self) -> None:
        for tensor, kept in zip(self.state(), self.kept, strict=True):
            tensor.copy_(kept)
        self.guard._claim(self.calibration)
        self.guard._learner = Learner()
        self.guard._checker._alone = 0
        self.guard.ledger.findings.clear()

    def step(self, *, update: bool = True) -> float:
        batch = [torch.randn(6, WIDTH, generator=self.data), torch.randn(6, 8, generator=self.data)]
        batch = [one.to(DEVICE) for one in batch]
        self.calls = 0
        loss = self.guard.step(self.run, batch)
        if update:
            self.optimizer.step()
        self.optimizer.zero_grad()
        return float(loss)

    def run(self, batch: list[torch.Tensor]) -> torch.Tensor:
        loss = nn.functional.mse_loss(self.model(batch[0]), batch[1])
        self.calls += 1
        if self.calls == self.dies:
            os._exit(0)
        if self.loader is not None:
            self.loader, overwrite = None, self.loader
            overwrite(batch)
        loss.backward()
        return loss.detach()

    def death(self) -> dict[str, Any]:
        """The last rank ends in the middle of the replay of a checked step; the others return from it."""
        while self.guard.ledger.steps % 2 == 0:
            self.step()
        self.dies = 2 if self.rank == self.world - 1 else 0
        loss = self.step(update=False)
        return {"loss": loss, **self.guard.report()}

    def starved(self) -> dict[str, Any]:
        """The last rank has no memory to keep what a replay begins from; the next checked step is checked again."""
        while self.guard.ledger.steps % 2 == 0:
            self.step()
        start = self.guard._replayer.start

        def refuse(_batch: Any) -> Any:
            raise torch.OutOfMemoryError("no memory left to keep a step")

        if self.rank == self.world - 1:
            self.guard._replayer.start = refuse  # type: ignore[method-assign]
        for _ in range(3):
            loss = self.step()
            self.guard._replayer.start = start  # type: ignore[method-assign]
        return {"loss": loss, **self.guard.report()}

    def trial(self, kind: str, seed: int) -> dict[str, Any]:
        """One trial: an update, the fault, a checked step. The same seed on every rank."""
        rng = random.Random(seed)  # noqa: S311
        victim = rng.randrange(self.world)
        source = (victim + 1 + rng.randrange(max(1, self.world - 1))) % self.world
        if self.guard.ledger.steps % 2:
            self.step()
        self.step()
        here = self.rank == victim
        if here and kind in {"memory", "optimizer"}:
            state, count = self.state(), len(list(self.model.parameters()))
            flip_at_rest(state[:count] if kind == "memory" else state[count:], rng)
        if here and kind == "loader":
            self.loader = lambda batch: batch[0].data.mul_(1.5)
        planted = Planted(
            kind, rank=self.rank, victim=victim, source=source, world=self.world, seed=seed, skip=rng.randrange(7)
        )
        with planted:
            self.step()
        findings = list(self.guard.ledger.findings)
        told = {
            "kind": kind,
            "shape": self.shape,
            "world": self.world,
            "victim": victim,
            "seed": seed,
            "fired": planted.fired,
        }
        told |= {"found": [[one.fault_class, one.rank, one.check, one.why] for one in findings]}
        told |= {"unchecked": dict(self.guard.ledger.unchecked), "steps": self.guard.ledger.steps}
        self.reset()
        return told


def rounds(rig: Rig, trials: int, seed: int, kinds: list[str]) -> Iterator[dict[str, Any]]:
    """All trials of one job."""
    if kinds in (["death"], ["starved"]):
        yield rig.death() if kinds == ["death"] else rig.starved()
        return
    if kinds == ["broken"]:
        from gang_breaks import train  # noqa: PLC0415 - of the ranks only

        told, plain = train(rig, broken=True), train(Rig(rig.shape, rank=rig.rank, world=rig.world), broken=False)
        yield {**told, "as_unbroken": told["losses"] == plain["losses"], "of_plain": plain["unchecked"]}
        return
    for number in range(trials):
        for index, kind in enumerate(kinds):
            if rig.world > 1 or kind not in {"link", "copy"}:
                yield rig.trial(kind, seed + 1000 * number + index)


def job(rank: int, world: int, store: str, shapes: list[str], trials: int, seed: int, kinds: list[str]) -> None:  # noqa: PLR0917
    """What one rank does."""
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    if DEVICE == "cuda":
        torch.cuda.set_device(rank)
    if world > 1:
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if DEVICE == "cuda" else "gloo",
            store=dist.FileStore(store, world),
            rank=rank,
            world_size=world,
            timeout=timedelta(seconds=DEADLINE_S),
        )
    for shape in shapes:
        rig = Rig(shape, rank=rank, world=world)
        for told in rounds(rig, trials, seed, kinds):
            if rank == 0:
                print(json.dumps(told), flush=True)  # noqa: T201
        if kinds == ["death"]:
            os._exit(0)  # without a word to a group that has lost a rank
    if world > 1:
        dist.destroy_process_group()


def main() -> int:
    """Fork the ranks of each gang: what takes seconds to import is imported once."""
    store, trials, seed, *gangs = sys.argv[1:]
    import torch.distributed.fsdp  # noqa: PLC0415

    torch.optim.SGD([nn.Parameter(torch.zeros(1))])  # imports the compiler

    context = multiprocessing.get_context("fork")
    worst = 0
    for number, gang in enumerate(gangs):
        world, shapes, kinds = gang.split(":")
        arguments = int(world), f"{store}-{number}", shapes.split(","), int(trials), int(seed), kinds.split(",")
        ranks = [context.Process(target=job, args=(rank, *arguments)) for rank in range(int(world))]
        for one in ranks:
            one.start()
        for rank, one in enumerate(ranks):
            one.join()
            if (one.exitcode or 0) < 0:  # by a signal, of which the rank itself has said nothing
                print(f"rank {rank} ended by signal {-one.exitcode}", file=sys.stderr, flush=True)  # noqa: T201
        worst = max(worst, *(abs(one.exitcode or 0) for one in ranks))
    return worst


if __name__ == "__main__":
    sys.exit(main())
