"""Collectives in which one rank misbehaves, said by the fault planted on it. Imported by child processes."""

import os
import signal

import torch

from burnin.collectives.fabric import UnsupportedError
from burnin.collectives.reduce import CollectiveExact
from burnin.spec import Ballot, Case
from burnin.workloads import Context


class Broken(CollectiveExact):
    """F01 dies, F02 stays away, F03 hangs with all others in the same transfer, F04 fails by itself."""

    def ballot(self, ctx: Context, case: Case, *, iteration: int, seed: int, launches: int) -> Ballot:
        match ctx.inject.fault if ctx.inject is not None else "":
            case "F01":
                os.kill(os.getpid(), signal.SIGKILL)
            case "F02":
                signal.pause()
            case "F03" if ctx.fabric is not None:
                # It waits for a message that nobody sends, after all have begun.
                ctx.alive()
                ctx.fabric.run("broadcast", torch.zeros(64), lambda _: torch.zeros(64), root=(ctx.fabric.rank + 1) % 3)
            case "F04":
                raise ArithmeticError("a GPU that computes nothing any more")
            case "F05":
                raise UnsupportedError("invalid usage: no tree here")
        return super().ballot(ctx, case, iteration=iteration, seed=seed, launches=launches)
