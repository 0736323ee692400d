"""`collective.exact` and `collective.repro`: collectives whose results every rank can check.

Exact: integers whose partial sums every dtype holds, so that any order, tree, ring, protocol or switch gives the same
bits; each rank makes the inputs of all ranks itself and so knows what must arrive. Repro: floats, the same size again
and again; sums may differ in order, so what lies inside the bound of any order is no fault, but it is told.
"""

from dataclasses import dataclass

import torch

from burnin.checksum import checksum, text
from burnin.collectives.algorithms import ALGORITHMS
from burnin.collectives.checks import DISTINCT, RESULT, Found, Links, fabric_of, same_bits, source
from burnin.collectives.fabric import OPS, Fabric
from burnin.golden import largest_integer
from burnin.inject import Injector
from burnin.keys import derive
from burnin.seed import MAGNITUDE_MAX, fill_integers, fill_normal
from burnin.spec import Ballot, Case
from burnin.workloads import Context
from burnin.workloads.launches import Stopwatch, injector_of, poison

DTYPES = {"int32": torch.int32, "fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
UNIT = {torch.float32: 2.0**-24, torch.bfloat16: 2.0**-8}
"""Unit roundoff."""
BYTES_CUDA, BYTES_CPU = (1 << 20, 64 << 20), (1 << 14,)
"""Of one contribution. NCCL chooses other algorithms for small messages than for large ones."""
COLUMNS = 64
"""Of the matrix as which a planted fault sees a result."""
ROUND = 16 * COLUMNS
"""Elements of one block are a multiple of this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """One case: what runs on how much."""

    op: str
    dtype: str
    size: int
    """Bytes of a contribution, about: it is rounded to whole blocks of every rank."""
    algorithm: str

    @property
    def name(self) -> str:
        """Name of the case; `burnin.collectives.algorithms.algorithm_of` reads its last word."""
        return f"{self.op} {self.dtype} {self.size >> 10}KiB {self.algorithm}"


class _Collectives(Links):
    """What both tests share."""

    test: str
    ops: tuple[str, ...]
    dtypes: tuple[str, ...]
    integers: bool
    """Whether what is put in are integers whose sums are exact in any order."""

    def __init__(self) -> None:
        self._injector: Injector | None = None

    def forms(self, ctx: Context) -> tuple[Form, ...]:
        """The forms of a backend: every operation and dtype by the library's choice, then what each algorithm has."""
        cuda = ctx.backend == "cuda"
        found = []
        for name, algorithm in ALGORITHMS[ctx.backend].items():
            chosen = name in {"default", "gloo", "simulated"}
            sizes = BYTES_CUDA if cuda else BYTES_CPU
            for op in [op for op in self.ops if op in (algorithm.ops or OPS)]:
                for dtype in self.dtypes if chosen else self.dtypes[1:3]:
                    found += [Form(op=op, dtype=dtype, size=size, algorithm=name) for size in sizes]
        return tuple(found)

    def cases(self, ctx: Context) -> tuple[Case, ...]:
        """Return one case a form; see `burnin.workloads.Workload`."""
        return tuple(
            Case(
                test=self.test,
                name=form.name,
                dtype=form.dtype,
                exact=True,  # the check has one right outcome, whatever the order of a sum
                rate_name=f"{self.test}_{form.name}_bytes_per_second".replace(" ", "_").replace(".", "_"),
            )
            for form in self.forms(ctx)
        )

    def _form(self, ctx: Context, case: Case) -> Form:
        for form in self.forms(ctx):
            if form.name == case.name:
                return form
        raise ValueError(f"{self.test} has no case {case.name!r} on backend {ctx.backend}")

    def ballot(self, ctx: Context, case: Case, *, iteration: int, seed: int, launches: int) -> Ballot:
        """Carry out one collective `launches` times with all ranks; see `burnin.workloads.Workload`.

        Raises:
            StuckError: It did not end in time.
            LostError: Another rank left.
            UnsupportedError: The library cannot do it with this algorithm.
            RuntimeError: Nothing was computed.
        """
        form, fabric = self._form(ctx, case), fabric_of(ctx)
        inputs = _Inputs(form, fabric, ctx, seed, exact=self.integers)
        root = seed % fabric.world
        right, slack = inputs.right(form.op, root)
        out = torch.empty(right.numel(), dtype=DTYPES[form.dtype], device=ctx.device)
        injector = self._injector = injector_of(ctx, self._injector)
        watch, found = Stopwatch(ctx.device), Found(case=case, iteration=iteration, seed=seed)
        sums = list[int]()
        fabric.run(form.op, out, inputs, root=root)  # connections are made, which is no part of the measured time
        fabric.settle(ctx.alive)
        poison(out)
        blank = checksum(out, derive(seed, form.name))
        for _ in range(launches):
            poison(out)
            watch.start()
            fabric.run(form.op, out, inputs, root=root)
            watch.stop()
            fabric.settle(ctx.alive)
            found.fired += injector.hit(out.view(-1, COLUMNS), op=form.op)
            ok = same_bits(out, right) if slack is None else _inside(out, right, slack)
            sums.append(checksum(out, derive(seed, form.name)))
            found.launch(_wrong(form.op, fabric, ok) | self.also_wrong(), sums[-1])
        if set(sums) == {blank}:  # on all ranks alike, it would look like a switch that loses everything
            raise RuntimeError(f"none of {launches} launches of {case.name} wrote its output: nothing was computed")
        more = () if slack is None else ((DISTINCT, str(len(set(sums)))), ("bits", text(sums[0])))
        return found.ballot(nbytes=out.nbytes, elapsed_s=watch.elapsed_s(), more=more)

    def also_wrong(self) -> dict[str, int]:
        """Name → count of what else was wrong in the last launch; nothing but the collective runs here."""
        return {}


class CollectiveExact(_Collectives):
    """`collective.exact`; see the module."""

    test = "collective.exact"
    integers = True
    ops = OPS
    dtypes = tuple(DTYPES)


class CollectiveRepro(_Collectives):
    """`collective.repro`; see the module."""

    test = "collective.repro"
    integers = False
    ops = ("all-reduce", "reduce-scatter")
    dtypes = ("bf16", "fp32")


class _Inputs:
    """What every rank puts in, made from the seed on any of them: callable by rank."""

    def __init__(self, form: Form, fabric: Fabric, ctx: Context, seed: int, *, exact: bool) -> None:
        self._form, self._fabric, self._ctx, self._seed, self._exact = form, fabric, ctx, seed, exact
        self._dtype = DTYPES[form.dtype]
        block = max(1, form.size // (fabric.world * self._dtype.itemsize * ROUND)) * ROUND
        self._count = block * fabric.world
        self._mine = self._make(fabric.rank)

    def __call__(self, rank: int) -> torch.Tensor:
        return self._mine if rank == self._fabric.rank else self._make(rank)

    def _make(self, rank: int) -> torch.Tensor:
        made = torch.empty(self._count, dtype=self._dtype, device=self._ctx.device)
        key = derive(self._seed, self._form.name, "rank", rank)
        if self._exact:
            # Any partial sum of the ranks stays an integer that the dtype holds.
            limit = MAGNITUDE_MAX if self._dtype is torch.int32 else largest_integer(self._dtype)
            fill_integers(made, key, max(1, min(MAGNITUDE_MAX, limit // self._fabric.world)))
        else:
            fill_normal(made, key)
        return made

    def right(self, op: str, root: int) -> tuple[torch.Tensor, torch.Tensor | None]:
        """What must arrive here; of floats that are added, in float64 with the greatest error that any order makes.

        The bound: n terms added in any order with unit roundoff u err by at most nu / (1 - nu) Σ|x|
        (Higham, Accuracy and Stability of Numerical Algorithms, 4.2, with one rounding more for the conversion).
        """
        world, rank = self._fabric.world, self._fabric.rank
        if op == "broadcast":
            return self(root), None
        if op in {"all-gather", "all-to-all"}:
            parts = [self(one) if op == "all-gather" else self(one).view(world, -1)[rank] for one in range(world)]
            return torch.cat(parts), None
        size = self._count if op == "all-reduce" else self._count // world
        total = torch.zeros(size, dtype=torch.float64, device=self._ctx.device)
        magnitude = torch.zeros_like(total)
        for one in range(world):
            part = self(one) if op == "all-reduce" else self(one).view(world, -1)[rank]
            total += part
            magnitude += part.abs()
            self._ctx.alive()
        if self._exact:
            return total.to(self._dtype), None
        error = world * UNIT[self._dtype]
        return total, magnitude * (error / (1 - error))


def _inside(out: torch.Tensor, right: torch.Tensor, slack: torch.Tensor) -> torch.Tensor:
    """Where a result is inside the bound; NaN and infinities are not."""
    return (out.to(torch.float64) - right).abs() <= slack


def _wrong(op: str, fabric: Fabric, ok: torch.Tensor) -> dict[str, int]:
    """Wrong elements by where they came from; an all-to-all alone goes straight from rank to rank."""
    if op != "all-to-all":
        return {RESULT: int((~ok).sum())}
    counts = (~ok).view(fabric.world, -1).sum(dim=1).tolist()
    return {RESULT if rank == fabric.rank else source(fabric, rank): int(count) for rank, count in enumerate(counts)}
