"""Matrix products: `gemm.exact` on integers with a golden, `gemm.vote` on full-mantissa data, `gemm.pattern`.

All launch the same product many times on the same inputs and checksum every output. What they find: a GPU that
differs from the others, from itself, or (exact) from the truth.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace

import torch

from burnin.checksum import TILE, checksum, text, tile_count
from burnin.golden import Product, refute
from burnin.inject import Injector
from burnin.keys import derive
from burnin.seed import fill_bits, fill_integers, fill_normal
from burnin.spec import Ballot, Case, Elements, Proof
from burnin.workloads import Context
from burnin.workloads.elements import Comparison
from burnin.workloads.launches import Lanes, injector_of, launch_all, poison, strict_math
from burnin.workloads.missing import missing
from burnin.workloads.patterns import PATTERNS, fill_pattern
from burnin.workloads.plans import Plan, accumulator_of, exact_plans, multiplier, pattern_plans, vote_plans

TILES_MAX = 64
"""Tiles that an examination computes on the CPU: at 8192³ one takes about 0.1 s."""


class _Gemm(ABC):
    """What the tests share; they differ in their plans and in the data."""

    test: str
    exact: bool

    def __init__(self) -> None:
        self._injector: Injector | None = None
        self._warm: set[str] = set()
        self._known: dict[str, Plan] = {}
        self._lanes: Lanes | None = None
        self._refused: dict[tuple[str, str, bool], str] = {}

    def _missing(self, ctx: Context, plan: Plan) -> str:
        """Why the library cannot compute a plan; asked once for plans that differ in their shape only."""
        kind = (plan.dtype, plan.path, plan.rounded)
        if kind not in self._refused:
            self._refused[kind] = missing(plan, ctx.device)
        return self._refused[kind]

    @abstractmethod
    def _plans(self, ctx: Context) -> tuple[Plan, ...]: ...

    @abstractmethod
    def _fill(self, plan: Plan, operand: torch.Tensor, key: int, start: int, *, left: bool) -> None: ...

    def cases(self, ctx: Context) -> tuple[Case, ...]:
        """Return one case a plan; see `burnin.workloads.Workload`."""
        return tuple(
            Case(
                test=self.test,
                name=plan.name,
                dtype=plan.dtype,
                exact=self.exact,
                rate_name=f"gemm_{plan.name.replace(' ', '_')}_flops_per_second",
                flops=plan.flops,
                missing=self._missing(ctx, plan),
            )
            for plan in self._plans(ctx)
        )

    def ballot(self, ctx: Context, case: Case, *, iteration: int, seed: int, launches: int) -> Ballot:
        """Launch the product `launches` times on the inputs of `seed`; see `burnin.workloads.Workload`."""
        plan = self._plan(ctx, case)
        a, bt = self._operands(ctx, plan, seed)
        out = torch.empty(plan.m, plan.n, dtype=plan.output, device=ctx.device)
        injector = self._injector = injector_of(ctx, self._injector)
        accumulator = accumulator_of(plan, a, bt)
        with strict_math(tf32=plan.dtype == "tf32"):
            multiply = multiplier(plan, a, bt)
            if plan.name not in self._warm:
                multiply(out)  # loads or compiles the kernel, which is no part of the measured time
                self._warm.add(plan.name)

            def strike(output: torch.Tensor) -> bool:
                with strict_math(tf32=False):
                    return injector.hit(output, accumulator)

            lanes = self._lanes = self._lanes or Lanes(ctx.device)
            done = launch_all(
                ctx, multiply, strike, out, launches=launches, seed=_checksum_seed(plan, seed), lanes=lanes
            )
        return Ballot(
            case=case.name,
            iteration=iteration,
            seed=seed,
            fingerprints=done.fingerprints,
            launches=launches,
            bytes=out.nbytes * launches,
            flops=plan.flops * launches,
            elapsed_s=done.elapsed_s,
            tiles=done.tiles,
            fired=done.fired,
        )

    def examine(
        self, ctx: Context, case: Case, *, seed: int, launches: int, right: str | None, tiles: tuple[int, ...]
    ) -> Elements | None:
        """Compare a wrong result with a right one of the same GPU, else with the truth; see `Workload`.

        A persistent fault in a test without a golden leaves nothing right to compare with.
        """
        plan = self._plan(ctx, case)
        a, bt = self._operands(ctx, plan, seed)
        out = torch.empty(plan.m, plan.n, dtype=plan.output, device=ctx.device)
        injector = self._injector = injector_of(ctx, self._injector)
        accumulator = accumulator_of(plan, a, bt)
        good = bad = None
        for _ in range(launches):
            poison(out)
            with strict_math(tf32=plan.dtype == "tf32"):
                multiplier(plan, a, bt)(out)
            with strict_math(tf32=False):
                injector.hit(out, accumulator)
            if text(checksum(out, _checksum_seed(plan, seed))) == right:
                good = out.clone()
            elif bad is None:
                bad = out.clone()
            ctx.alive()
            if bad is not None and (good is not None or self.exact):
                break
        if bad is None:
            return None
        if good is None:
            return self._compare_with_truth(ctx, plan, bad, seed, tiles)
        comparison = Comparison(plan.n)
        comparison.add(bad, good)
        return comparison.elements()

    def _compare_with_truth(
        self, ctx: Context, plan: Plan, output: torch.Tensor, seed: int, tiles: tuple[int, ...]
    ) -> Elements | None:
        """Compare with what the CPU knows to be right, where there is a golden."""
        del ctx, plan, output, seed, tiles
        return None

    def _plan(self, ctx: Context, case: Case) -> Plan:
        if case.name not in self._known:  # the table asks the device: too slow for the time between two ballots
            self._known = {plan.name: plan for plan in self._plans(ctx)}
        if case.name not in self._known:
            raise ValueError(f"{self.test} has no case {case.name!r} on backend {ctx.backend}")
        return self._known[case.name]

    def _operands(self, ctx: Context, plan: Plan, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
        a = torch.empty(plan.m, plan.k, dtype=plan.operand, device=ctx.device)
        bt = torch.empty(plan.n, plan.k, dtype=plan.operand, device=ctx.device)
        self._fill(plan, a, self._key(plan, seed, "a"), 0, left=True)
        self._fill(plan, bt, self._key(plan, seed, "b"), 0, left=False)
        return a, bt

    def _key(self, plan: Plan, seed: int, operand: str) -> int:
        return derive(seed, self.test, plan.name, operand)


class GemmExact(_Gemm):
    """`gemm.exact`: integers inside the accumulator's exact range, so that every order gives the same bits."""

    test = "gemm.exact"
    exact = True

    def _plans(self, ctx: Context) -> tuple[Plan, ...]:
        return exact_plans(ctx.backend, ctx.device)

    def _fill(self, plan: Plan, operand: torch.Tensor, key: int, start: int, *, left: bool) -> None:
        del left
        fill_integers(operand, key, plan.magnitude, start=start)

    def prove(self, ctx: Context, case: Case, *, seed: int) -> Proof:
        """Compute the unrounded product once on the device and prove or refute it on the CPU.

        The golden of a rounded output is the CPU's rounding (to nearest, ties to even) of the proved sums.
        """
        plan = self._plan(ctx, case)
        full = replace(plan, rounded=False)
        a, bt = self._operands(ctx, plan, seed)
        out = torch.empty(plan.m, plan.n, dtype=full.output, device=ctx.device)
        poison(out)
        injector = self._injector = injector_of(ctx, self._injector)
        with strict_math(tf32=plan.dtype == "tf32"):
            multiplier(full, a, bt)(out)
        injector.hit(out)
        ctx.alive()
        full_sums = out.cpu()
        refuted = refute(full_sums, self._product(plan, seed), seed=seed, alive=ctx.alive)
        if refuted is not None:
            return Proof(case=case.name, seed=seed, fingerprint=None, why=refuted.why)
        golden = full_sums.to(plan.output)
        if not bool(torch.isfinite(golden.to(torch.float64)).all()):
            raise ValueError(f"{case.name}: right sums do not fit {plan.dtype}; the plan's inputs are too large")
        fingerprint = text(checksum(golden, _checksum_seed(plan, seed)))
        how = f"proved on the CPU by Freivalds' check ({plan.shape}, |inputs| <= {plan.magnitude})"
        return Proof(case=case.name, seed=seed, fingerprint=fingerprint, why=how)

    def _compare_with_truth(
        self, ctx: Context, plan: Plan, output: torch.Tensor, seed: int, tiles: tuple[int, ...]
    ) -> Elements | None:
        """Compare the tiles in question with their products, which the CPU computes for them alone."""
        product = self._product(plan, seed)
        across = -(-plan.n // TILE)
        numbers = tiles or tuple(range(tile_count(output)))
        if len(numbers) > TILES_MAX and not plan.rounded:  # nobody knows where: the proof finds a row of them
            refuted = refute(output, product, seed=seed, alive=ctx.alive)
            first = refuted.row // TILE * across if refuted is not None else 0
            numbers = tuple(range(first, first + across))
        comparison = Comparison(plan.n)
        for number in numbers[:TILES_MAX]:
            row, column = (TILE * at for at in divmod(number, across))
            a = product.a_rows(row, min(row + TILE, plan.m)).to(torch.float64)
            bt = product.bt_rows(column, min(column + TILE, plan.n)).to(torch.float64)
            right = (a @ bt.t()).to(plan.accumulator).to(plan.output)
            comparison.add(output[row : row + TILE, column : column + TILE].cpu(), right, row=row, column=column)
            ctx.alive()
        return comparison.elements()

    def _product(self, plan: Plan, seed: int) -> Product:
        def rows(operand: str) -> Callable[[int, int], torch.Tensor]:
            key = self._key(plan, seed, operand)

            def make(first: int, after: int) -> torch.Tensor:
                piece = torch.empty(after - first, plan.k, dtype=torch.float32)
                self._fill(plan, piece, key, first * plan.k, left=operand == "a")
                return piece

            return make

        return Product(a_rows=rows("a"), bt_rows=rows("b"), m=plan.m, n=plan.n, k=plan.k, magnitude=plan.magnitude)


class _NoGolden(_Gemm):
    """Tests whose sums are rounded: their bits depend on the order and mean something inside a vote key only."""

    exact = False

    def prove(self, ctx: Context, case: Case, *, seed: int) -> Proof:
        """Raise ValueError: rounded sums depend on their order and have no golden."""
        raise ValueError(f"{case.test} {case.name} (seed {seed}, {ctx.backend}) is not exact and has no golden")


class GemmVote(_NoGolden):
    """`gemm.vote`: data that use every mantissa bit and many exponents."""

    test = "gemm.vote"

    def _plans(self, ctx: Context) -> tuple[Plan, ...]:
        return vote_plans(ctx.backend, ctx.device)

    def _fill(self, plan: Plan, operand: torch.Tensor, key: int, start: int, *, left: bool) -> None:
        del plan, left
        if operand.dtype is torch.int8:
            fill_bits(operand, key)
            return
        fill_normal(operand, key, start=start)
        if operand.dtype is torch.float64:  # the normal numbers have 24 bits: these are the others
            low = torch.empty_like(operand)
            fill_normal(low, derive(key, "low"), start=start)
            operand.add_(low, alpha=2.0**-24)


class GemmPattern(_NoGolden):
    """`gemm.pattern`: see `burnin.workloads.patterns`."""

    test = "gemm.pattern"

    def _plans(self, ctx: Context) -> tuple[Plan, ...]:
        return pattern_plans(ctx.backend, ctx.device, PATTERNS)

    def _fill(self, plan: Plan, operand: torch.Tensor, key: int, start: int, *, left: bool) -> None:
        del start
        fill_pattern(operand, plan.pattern, key, left=left)


def _checksum_seed(plan: Plan, seed: int) -> int:
    return derive(seed, plan.name, "checksum")
