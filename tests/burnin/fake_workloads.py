"""Workloads for tests of the runner: they compute nothing and misbehave on request. Imported by child processes.

Which GPU misbehaves is said by the planted fault, the only thing in a context that differs between GPUs.
"""

import os
import signal
from dataclasses import replace
from pathlib import Path

from burnin.spec import Ballot, Case, Elements, Proof
from burnin.workloads import Context, MissingError

GOOD = f"{1:016x}"


class Honest:
    """A perfect machine: a planted fault changes its result."""

    def cases(self, ctx: Context) -> tuple[Case, ...]:
        del ctx
        return (Case(test="gemm.exact", name="c", dtype="fp32", exact=True, rate_name="c_flops_per_second"),)

    def ballot(self, ctx: Context, case: Case, *, iteration: int, seed: int, launches: int) -> Ballot:
        bad = self.struck(ctx)
        return Ballot(
            case=case.name,
            iteration=iteration,
            seed=seed,
            fingerprints=((f"bad{ctx.inject.seed:013x}" if bad and ctx.inject else GOOD, launches),),
            launches=launches,
            bytes=1 << 20,
            flops=launches,
            elapsed_s=1.0,
            fired=launches if bad else 0,
        )

    def prove(self, ctx: Context, case: Case, *, seed: int) -> Proof:
        bad = self.struck(ctx)
        return Proof(case=case.name, seed=seed, fingerprint=None if bad else GOOD, why="fake")

    def examine(
        self, ctx: Context, case: Case, *, seed: int, launches: int, right: str | None, tiles: tuple[int, ...]
    ) -> Elements | None:
        del case, seed, launches, right, tiles
        return Elements(count=1, compared=2, bits=((0, 1),), period=None, first=(0, 1)) if self.struck(ctx) else None

    def struck(self, ctx: Context) -> bool:
        return ctx.inject is not None


class Absent(Honest):
    """Something is missing on this machine."""

    def cases(self, ctx: Context) -> tuple[Case, ...]:
        del ctx
        raise MissingError("the library has no such operation")


class Partly(Honest):
    """The library refuses one of two cases."""

    def cases(self, ctx: Context) -> tuple[Case, ...]:
        (whole,) = super().cases(ctx)
        return (whole, replace(whole, name="other", missing="torch 1 has no _int_mm"))


class Miscounting(Honest):
    """One core of the host's CPU refutes whatever it checks, alone or with others; the GPU is right."""

    def prove(self, ctx: Context, case: Case, *, seed: int) -> Proof:
        proof = super().prove(ctx, case, seed=seed)
        bad = min(os.sched_getaffinity(os.getppid())) in os.sched_getaffinity(0)
        return replace(proof, fingerprint=None, why="row 0 is not the product of the inputs") if bad else proof


class Deaf(Honest):
    """Planted faults change nothing: what a broken self-test looks like."""

    def struck(self, ctx: Context) -> bool:
        del ctx
        return False


class Misbehaving(Honest):
    """A fault planted by the user (F01, F05, F06, F12, which the self-test never plants) is acted out instead."""

    def struck(self, ctx: Context) -> bool:
        match ctx.inject.fault if ctx.inject is not None else "":
            case "F12":
                _hang()
            case "F01":
                os.kill(os.getpid(), signal.SIGSEGV)
            case "F05":
                raise RuntimeError("CUDA error: uncorrectable ECC error encountered\nand a long story")
            case "F06":
                raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB; process 77 holds 120 GiB\nand more")
        return super().struck(ctx)


def _first_two() -> bool:
    """Whether fewer than two processes of this run, whose directory of its own this is, have come here before."""
    for number in range(2):
        try:
            Path(f"was-here-{number}").touch(exist_ok=False)
        except FileExistsError:
            continue
        return True
    return False


def _hang() -> None:
    """Say so to whoever looks at the directory of the run, and answer no more."""
    _first_two()
    signal.pause()


class Stillborn(Honest):
    """The first GPU that is asked for the cases dies of it, and again when it is asked again."""

    def cases(self, ctx: Context) -> tuple[Case, ...]:
        if _first_two():
            os.kill(os.getpid(), signal.SIGSEGV)
        return super().cases(ctx)


class Stuck(Honest):
    """The first GPU that the self-test plants a fault on hangs instead, and again when it is asked again."""

    def struck(self, ctx: Context) -> bool:
        if ctx.inject is not None and _first_two():
            signal.pause()
        return super().struck(ctx)
