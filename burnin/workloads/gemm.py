"""Matrix products: `gemm.exact` on integers with a golden, `gemm.vote` on full-mantissa floats.

Both launch the same product many times on the same inputs and checksum every output. What they find: a GPU that
differs from the others, from itself, or (exact) from the truth.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch

from burnin.checksum import checksum, text
from burnin.golden import Product, refute
from burnin.inject import Injector
from burnin.seed import fill_integers, fill_normal
from burnin.spec import Ballot, Case, Proof
from burnin.words import MASK64, derive
from burnin.workloads import Context
from burnin.workloads.launches import injector_of, launch_all, poison, strict_math
from burnin.workloads.plans import Plan, accumulator_of, exact_plans, multiplier, vote_plans

Fill = Callable[[Plan, torch.Tensor, int, int], None]
"""(plan, tensor, key, linear index of its first element): makes an operand or some rows of it."""


class _Gemm(ABC):
    """What the two tests share; they differ in their plans and in the data."""

    test: str
    exact: bool

    def __init__(self) -> None:
        self._injector: Injector | None = None
        self._warm: set[str] = set()

    @abstractmethod
    def _plans(self, ctx: Context) -> tuple[Plan, ...]: ...

    @abstractmethod
    def _fill(self, plan: Plan, operand: torch.Tensor, key: int, start: int) -> None: ...

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

            done, tiles = launch_all(ctx, multiply, strike, out, launches=launches, seed=_checksum_seed(plan, seed))
        return Ballot(
            case=case.name,
            iteration=iteration,
            seed=seed,
            fingerprints=done.fingerprints,
            launches=launches,
            bytes=out.nbytes * launches,
            flops=plan.flops * launches,
            elapsed_s=done.elapsed_s,
            tiles=tuple(int(value) & MASK64 for value in tiles.tolist()),
            fired=done.fired,
        )

    def _plan(self, ctx: Context, case: Case) -> Plan:
        for plan in self._plans(ctx):
            if plan.name == case.name:
                return plan
        raise ValueError(f"{self.test} has no case {case.name!r} on backend {ctx.backend}")

    def _operands(self, ctx: Context, plan: Plan, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
        a = torch.empty(plan.m, plan.k, dtype=plan.operand, device=ctx.device)
        bt = torch.empty(plan.n, plan.k, dtype=plan.operand, device=ctx.device)
        self._fill(plan, a, self._key(plan, seed, "a"), 0)
        self._fill(plan, bt, self._key(plan, seed, "b"), 0)
        return a, bt

    def _key(self, plan: Plan, seed: int, operand: str) -> int:
        return derive(seed, self.test, plan.name, operand)


class GemmExact(_Gemm):
    """`gemm.exact`: integers inside the accumulator's exact range, so that every order gives the same bits."""

    test = "gemm.exact"
    exact = True

    def _plans(self, ctx: Context) -> tuple[Plan, ...]:
        return exact_plans(ctx.backend, ctx.device)

    def _fill(self, plan: Plan, operand: torch.Tensor, key: int, start: int) -> None:
        fill_integers(operand, key, plan.magnitude, start=start)

    def prove(self, ctx: Context, case: Case, *, seed: int) -> Proof:
        """Compute the unrounded product once on the device and prove or refute it on the CPU.

        The golden of a rounded output is the CPU's rounding (to nearest, ties to even) of the proved sums.
        """
        plan = self._plan(ctx, case)
        full = Plan(dtype=plan.dtype, path=plan.path, m=plan.m, k=plan.k, n=plan.n, rounded=False)
        a, bt = self._operands(ctx, plan, seed)
        out = torch.empty(plan.m, plan.n, dtype=full.output, device=ctx.device)
        poison(out)
        injector = self._injector = injector_of(ctx, self._injector)
        with strict_math(tf32=plan.dtype == "tf32"):
            multiplier(full, a, bt)(out)
        injector.hit(out)
        ctx.alive()
        why = refute(out, self._product(plan, seed), seed=seed, alive=ctx.alive)
        if why is not None:
            return Proof(case=case.name, seed=seed, fingerprint=None, why=why)
        golden = out.cpu().to(plan.output)
        if not bool(torch.isfinite(golden.to(torch.float64)).all()):
            raise ValueError(f"{case.name}: right sums do not fit {plan.dtype}; the plan's inputs are too large")
        fingerprint = text(checksum(golden, _checksum_seed(plan, seed)))
        how = f"proved on the CPU by Freivalds' check ({plan.shape}, |inputs| <= {plan.magnitude})"
        return Proof(case=case.name, seed=seed, fingerprint=fingerprint, why=how)

    def _product(self, plan: Plan, seed: int) -> Product:
        def rows(operand: str) -> Callable[[int, int], torch.Tensor]:
            key = self._key(plan, seed, operand)

            def make(first: int, after: int) -> torch.Tensor:
                piece = torch.empty(after - first, plan.k, dtype=torch.float32)
                self._fill(plan, piece, key, first * plan.k)
                return piece

            return make

        return Product(a_rows=rows("a"), bt_rows=rows("b"), m=plan.m, n=plan.n, k=plan.k, magnitude=plan.magnitude)


class GemmVote(_Gemm):
    """`gemm.vote`: data that use every mantissa bit and many exponents; comparable inside a vote key only."""

    test = "gemm.vote"
    exact = False

    def _plans(self, ctx: Context) -> tuple[Plan, ...]:
        return vote_plans(ctx.backend, ctx.device)

    def _fill(self, plan: Plan, operand: torch.Tensor, key: int, start: int) -> None:
        del plan
        fill_normal(operand, key, start=start)

    def prove(self, ctx: Context, case: Case, *, seed: int) -> Proof:
        """Raise ValueError: rounded sums depend on their order and have no golden."""
        raise ValueError(f"{case.test} {case.name} (seed {seed}, {ctx.backend}) is not exact and has no golden")


def _checksum_seed(plan: Plan, seed: int) -> int:
    return derive(seed, plan.name, "checksum")
