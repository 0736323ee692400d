"""What the tests of one function after the other share: a recipe makes inputs, launches, and says what is right.

A test is a list of recipes. Each has named outputs; all are poisoned, handed to the injector and checksummed at every
launch, and the trace of a ballot names the first output that differs.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from burnin.checksum import checksum, checksum_into, text
from burnin.inject import WORD, Injector
from burnin.keys import MASK64, derive
from burnin.spec import Ballot, Case, Elements, Proof
from burnin.workloads import Context
from burnin.workloads.elements import Comparison
from burnin.workloads.launches import Stopwatch, injector_of, poison, strict_math, tally

Tensors = Mapping[str, torch.Tensor]
"""Name of an output → contiguous tensor, in the order of execution."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """Inputs on the device, and where the results go."""

    outputs: Tensors
    launch: Callable[[], None]
    """Computes every output, in place and completely; what it leaves unwritten stays poisoned and differs."""
    truth: Callable[[], Tensors] | None = None
    """Computes the right results on the CPU, by other code than `launch` on a GPU; None where rounding decides."""
    inside: Callable[[], torch.Tensor] | None = None
    """Returns int32 ones for the bounds that the outputs keep as they lie there, else zeros; None: it has no bounds.
    The bounds hold for every right result: breaking one counts without a vote."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One case."""

    name: str
    dtype: str
    exact: bool
    """Whether every device gives the bits of `Prepared.truth`."""
    prepare: Callable[[Context, int], Prepared]
    """(context, seed) → inputs and outputs; called once a ballot."""
    flops: int = 0
    """Of one launch; 0 where it has no meaning, so that no rate is reported."""


class Recipes(ABC):
    """A test that consists of recipes; see `burnin.workloads.Workload`."""

    test: str

    def __init__(self) -> None:
        self._injector: Injector | None = None
        self._warm: set[str] = set()

    @abstractmethod
    def recipes(self, ctx: Context) -> tuple[Recipe, ...]:
        """The recipes that exist on this backend, in the order of execution.

        Raises:
            MissingError: None does, because something is missing here.
        """

    def cases(self, ctx: Context) -> tuple[Case, ...]:
        """Return one case a recipe; see `burnin.workloads.Workload`."""
        return tuple(
            Case(
                test=self.test,
                name=recipe.name,
                dtype=recipe.dtype,
                exact=recipe.exact,
                rate_name=f"{self.test}_{recipe.name}_flops_per_second".replace(" ", "_").replace(".", "_"),
                flops=recipe.flops,
            )
            for recipe in self.recipes(ctx)
        )

    def ballot(self, ctx: Context, case: Case, *, iteration: int, seed: int, launches: int) -> Ballot:
        """Launch the recipe `launches` times on the inputs of `seed`; see `burnin.workloads.Workload`.

        Raises:
            RuntimeError: No launch wrote one of the outputs; on all GPUs alike, no vote would see it.
        """
        recipe = self._recipe(ctx, case)
        with strict_math(tf32=False):
            prepared = recipe.prepare(ctx, seed)
            self._warm_up(recipe, prepared)
            injector = self._injector = injector_of(ctx, self._injector)
            names = tuple(prepared.outputs)
            rows_of = (*names, *(("bounds",) if prepared.inside is not None else ()))
            slots = torch.zeros(launches, len(rows_of), dtype=torch.int64, device=ctx.device)
            kept = torch.ones(launches, dtype=torch.bool, device=ctx.device)
            watch = Stopwatch(ctx.device)
            fired = 0
            _poison_all(prepared)
            blank = [checksum(output, _checksum_seed(recipe, seed)) for output in prepared.outputs.values()]
            for launch in range(launches):
                watch.start()
                prepared.launch()
                watch.stop()
                fired += _strike(injector, prepared)
                for at, name in enumerate(names):
                    checksum_into(slots[launch, at : at + 1], prepared.outputs[name], _checksum_seed(recipe, seed))
                if prepared.inside is not None:
                    flags = prepared.inside()
                    kept[launch] = (flags == 1).all()
                    checksum_into(slots[launch, -1:], flags, _checksum_seed(recipe, seed))
                ctx.alive()
            rows = [[int(value) & MASK64 for value in row] for row in slots.tolist()]
            outside = launches - int(kept.sum())
        for name, poisoned, *sums in zip(names, blank, *rows, strict=False):  # bounds cannot be left unwritten
            if set(sums) == {poisoned}:
                raise RuntimeError(f"none of {launches} launches wrote {name}: nothing was computed")
        fingerprints, odd = tally([_fingerprint(seed, row) for row in rows])
        return Ballot(
            case=case.name,
            iteration=iteration,
            seed=seed,
            fingerprints=fingerprints,
            launches=launches,
            bytes=launches * sum(output.nbytes for output in prepared.outputs.values()),
            flops=recipe.flops * launches,
            elapsed_s=watch.elapsed_s(),
            trace=tuple((name, text(value)) for name, value in zip(rows_of, rows[odd], strict=True)),
            fired=fired,
            outside=outside,
        )

    def prove(self, ctx: Context, case: Case, *, seed: int) -> Proof:
        """Compute once and compare every bit with what the CPU computes.

        Raises:
            ValueError: The case is not exact.
        """
        recipe = self._recipe(ctx, case)
        with strict_math(tf32=False):
            prepared = recipe.prepare(ctx, seed)
            if prepared.truth is None:
                raise ValueError(f"{case.test} {case.name} (seed {seed}) is not exact and has no golden")
            self._launch_once(ctx, prepared)
            right = prepared.truth()
            ctx.alive()
            row = []
            for name, output in prepared.outputs.items():
                found = _differences(output.cpu(), right[name])
                if found is not None:
                    counted = f"{found.count} of {found.compared} elements of {name}"
                    why = f"{counted} differ from the CPU's, first {[*found.first]}"
                    return Proof(case=case.name, seed=seed, fingerprint=None, why=why)
                slot = torch.zeros(1, dtype=torch.int64)
                checksum_into(slot, right[name], _checksum_seed(recipe, seed))
                row.append(int(slot) & MASK64)
        how = f"equal to the CPU's, bit by bit: {', '.join(prepared.outputs)}"
        return Proof(case=case.name, seed=seed, fingerprint=text(_fingerprint(seed, row)), why=how)

    def examine(
        self, ctx: Context, case: Case, *, seed: int, launches: int, right: str | None, tiles: tuple[int, ...]
    ) -> Elements | None:
        """Find the wrong elements of the first wrong output, by the CPU or by a right launch of this GPU."""
        del tiles
        recipe = self._recipe(ctx, case)
        good: dict[str, torch.Tensor] | None = None
        bad: dict[str, torch.Tensor] | None = None
        with strict_math(tf32=False):
            prepared = recipe.prepare(ctx, seed)
            for _ in range(launches):
                self._launch_once(ctx, prepared)
                kept = {name: output.to("cpu", copy=True) for name, output in prepared.outputs.items()}
                if _sum_of(recipe, kept | _flags(prepared), seed) == right:
                    good = kept
                elif bad is None:
                    bad = kept
                if bad is not None and (good is not None or prepared.truth is not None):
                    break
            if bad is None:
                return None
            reference = prepared.truth() if prepared.truth is not None else good
        found = [_differences(bad[name], reference[name]) for name in bad] if reference is not None else []
        return next((one for one in found if one is not None), None)

    def _recipe(self, ctx: Context, case: Case) -> Recipe:
        for recipe in self.recipes(ctx):
            if recipe.name == case.name:
                return recipe
        raise ValueError(f"{self.test} has no case {case.name!r} on backend {ctx.backend}")

    def _warm_up(self, recipe: Recipe, prepared: Prepared) -> None:
        if recipe.name not in self._warm:
            prepared.launch()  # loads or compiles kernels, which is no part of the measured time
            self._warm.add(recipe.name)

    def _launch_once(self, ctx: Context, prepared: Prepared) -> None:
        injector = self._injector = injector_of(ctx, self._injector)
        _poison_all(prepared)
        prepared.launch()
        _strike(injector, prepared)
        ctx.alive()


def _poison_all(prepared: Prepared) -> None:
    for output in prepared.outputs.values():
        poison(output)


def _flags(prepared: Prepared) -> dict[str, torch.Tensor]:
    return {"bounds": prepared.inside().cpu()} if prepared.inside is not None else {}


def _strike(injector: Injector, prepared: Prepared) -> bool:
    """Hand every output to the injector; whether any changed."""
    changed = [injector.hit(output, op=name) for name, output in prepared.outputs.items()]  # all, not up to the first
    return any(changed)


def _checksum_seed(recipe: Recipe, seed: int) -> int:
    return derive(seed, recipe.name, "checksum")


def _fingerprint(seed: int, row: list[int]) -> int:
    return row[0] if len(row) == 1 else derive(seed, *row)


def _sum_of(recipe: Recipe, outputs: Tensors, seed: int) -> str:
    row = []
    for output in outputs.values():
        slot = torch.zeros(1, dtype=torch.int64)
        checksum_into(slot, output, _checksum_seed(recipe, seed))
        row.append(int(slot) & MASK64)
    return text(_fingerprint(seed, row))


def _differences(wrong: torch.Tensor, right: torch.Tensor) -> Elements | None:
    """Compare two tensors on the CPU bit by bit, as rows of their last dimension."""
    columns = wrong.shape[-1] if wrong.dim() else 1
    comparison = Comparison(columns)
    word = WORD[wrong.element_size()]
    comparison.add(wrong.view(word).view(-1, columns), right.contiguous().view(word).view(-1, columns))
    return comparison.elements()
