"""`rate`: how fast products of each dtype, copies on the device and copies over the host link are.

What `burnin.verdict.rates` compares between the GPUs of a host, and with what `burnin.roofline` expects. Results are
checked as in every test, so that nothing is fast by not computing. The links between GPUs are timed by `copy` and the
collectives, which need all GPUs at once.
"""

from collections.abc import Callable
from dataclasses import replace

import torch

from burnin.keys import derive
from burnin.processes.senses import BUSY_HERTZ
from burnin.seed import fill_bits, fill_normal
from burnin.spec import Ballot, Case
from burnin.workloads import Context
from burnin.workloads.launches import strict_math
from burnin.workloads.plans import Plan, multiplier, vote_plans
from burnin.workloads.recipes import Prepared, Recipe, Recipes

WORDS_CUDA, WORDS_CPU = 1 << 28, 1 << 12
"""32-bit words of a copy on the device: 1 GiB, far beyond any cache."""
HOST_WORDS_CUDA = 1 << 22
"""Of a copy over the host link: 16 MiB, which the CPU has to sum up."""
SLOW, NARROW = 0.9, 0.6
"""Shares of the host's median, or of what the part must reach, below which a GPU is slow. Of copies over the host link
all GPUs want some at once, and some sit farther from the memory than others: only what is missing when half of a link
is gone counts."""
SIMULATED_OPERATIONS = 1024
"""A simulated GPU is timed by its own clock: this many operations, or bytes, in a period of it."""
COLUMNS = 64


class Rate(Recipes):
    """See the module."""

    test = "rate"

    def recipes(self, ctx: Context) -> tuple[Recipe, ...]:
        """One recipe a dtype, then the copies; see `burnin.workloads.recipes`."""
        return (*(_product(plan) for plan in rated_plans(ctx)), *_copies(ctx))

    def cases(self, ctx: Context) -> tuple[Case, ...]:
        """Return the cases with the names of their rates, and what is slow where a GPU has its time for itself."""
        return tuple(
            replace(
                case,
                rate_name=f"{case.test}_{case.name}_{_unit(case)}_per_second".replace(" ", "_"),
                slow_below=0.0 if ctx.backend == "cpu" else NARROW if "host" in case.name else SLOW,
            )
            for case in super().cases(ctx)
        )

    def ballot(self, ctx: Context, case: Case, *, iteration: int, seed: int, launches: int) -> Ballot:
        """Time `launches` launches; see `burnin.workloads.Workload`. Simulated time on a simulated GPU."""
        cast = super().ballot(ctx, case, iteration=iteration, seed=seed, launches=launches)
        if ctx.backend != "sim":
            return cast
        return replace(cast, elapsed_s=cast.flops / (SIMULATED_OPERATIONS * BUSY_HERTZ))


def _unit(case: Case) -> str:
    return "bytes" if case.dtype == "bytes" else "flops"


def rated_plans(ctx: Context) -> tuple[Plan, ...]:
    """The first product of each dtype that `gemm.vote` has, in its largest shape."""
    first: dict[str, Plan] = {}
    for plan in vote_plans(ctx.backend, ctx.device):
        first.setdefault(plan.dtype, plan)
    return tuple(first.values())


def _product(plan: Plan) -> Recipe:
    def prepare(ctx: Context, seed: int) -> Prepared:
        a = torch.empty(plan.m, plan.k, dtype=plan.operand, device=ctx.device)
        bt = torch.empty(plan.n, plan.k, dtype=plan.operand, device=ctx.device)
        out = torch.empty(plan.m, plan.n, dtype=plan.output, device=ctx.device)
        for name, operand in (("a", a), ("b", bt)):
            fill: Callable[[torch.Tensor, int], None] = fill_bits if operand.dtype is torch.int8 else fill_normal
            fill(operand, derive(seed, Rate.test, plan.name, name))
        multiply = multiplier(plan, a, bt)

        def launch() -> None:
            with strict_math(tf32=plan.dtype == "tf32"):
                multiply(out)

        return Prepared(outputs={"product": out}, launch=launch)

    return Recipe(name=plan.name, dtype=plan.dtype, exact=False, prepare=prepare, flops=plan.flops)


def _copies(ctx: Context) -> tuple[Recipe, ...]:
    """On the device; on a GPU also down from the host's pinned memory and up to it."""
    cuda = ctx.device.type == "cuda"
    cpu = torch.device("cpu")
    words = WORDS_CUDA if cuda else WORDS_CPU
    copies = [_copy("device copy", words, ctx.device, ctx.device, passes=2)]
    if cuda:
        copies.append(_copy("host to device", HOST_WORDS_CUDA, cpu, ctx.device, passes=1))
        copies.append(_copy("device to host", HOST_WORDS_CUDA, ctx.device, cpu, passes=1))
    return tuple(copies)


def _copy(name: str, words: int, source: torch.device, target: torch.device, *, passes: int) -> Recipe:
    """`passes`: over the memory of the device, which reads and writes where a link only carries."""

    def prepare(ctx: Context, seed: int) -> Prepared:
        pinned = ctx.device.type == "cuda"
        shape = (words // COLUMNS, COLUMNS)
        sent, got = (
            torch.empty(shape, dtype=torch.int32, device=where, pin_memory=pinned and where.type == "cpu")
            for where in (source, target)
        )
        fill_bits(sent, derive(seed, Rate.test, name))

        def launch() -> None:
            got.copy_(sent, non_blocking=True)
            if pinned and target.type == "cpu":  # who sums it up does not wait for the device by itself
                torch.cuda.synchronize(ctx.device)

        return Prepared(outputs={"copy": got}, launch=launch, truth=lambda: {"copy": sent.cpu()})

    return Recipe(name=name, dtype="bytes", exact=True, prepare=prepare, flops=4 * words * passes)
