"""`gemm.smvote`: the same tile on every multiprocessor of one GPU, and a vote among them.

It finds a persistent fault of one multiprocessor even on a host with a single GPU, and names it. The tile is a product
of integers, so there is a golden as well. A multiprocessor that no program visited has not voted: a ballot that missed
any counts no launches, and with too few of them the run is not judged.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from burnin.checksum import text
from burnin.golden import exact_magnitude
from burnin.inject import FAULTS, Injector, stale_byte
from burnin.kernels import have_triton, same_tile_on_device
from burnin.keys import MASK64, derive
from burnin.seed import fill_bits, fill_integers
from burnin.spec import Ballot, Case, Elements, Proof
from burnin.workloads import Context, MissingError
from burnin.workloads.elements import Comparison
from burnin.workloads.launches import Stopwatch, injector_of, poison, strict_math, tally
from burnin.workloads.plans import DTYPES, Plan, arch_of_device

TEST = "gemm.smvote"
PROGRAMS_PER_UNIT = 16
"""Programs for each multiprocessor: on an H200 2,112 programs visited all 132, every time."""
STAND_IN_UNITS = 4
"""Multiprocessors of a GPU that is computed on a CPU."""
DEPTH, DEPTH_PLAIN, DEPTH_CPU = 4096, 512, 128
"""K for matrix units, for multiply-adds, and on a CPU."""
EDGE_CPU = 32
CHUNK = 128
"""Programs whose tiles are summed up at a time: bounds the temporaries to some 20 MiB."""
PLAIN = {"ffma": torch.float32, "imad": torch.int32}
"""Units that are no matrix units: multiply-adds of float32 and of int32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tile:
    """One case: operands of one tile."""

    dtype: str
    operand: torch.dtype
    edge: int
    k: int
    magnitude: int
    programs: int

    @property
    def name(self) -> str:
        """Name of the case."""
        return f"{self.dtype} tile {self.edge}x{self.k}x{self.edge}"

    @property
    def output(self) -> torch.dtype:
        """Dtype of the sums."""
        return torch.int32 if self.operand in {torch.int8, torch.int32} else torch.float32


@dataclass(frozen=True, slots=True, kw_only=True)
class _Launch:
    """What one launch gave: multiprocessor → how often each sum."""

    sums: Mapping[int, Counter[int]]

    def classes(self) -> Counter[int]:
        """How often each sum, wherever it came from."""
        return sum(self.sums.values(), Counter[int]())

    def fingerprint(self, seed: int) -> int:
        """The one sum of a sane chip; else all sums and their counts, wherever they came from."""
        classes = self.classes()
        if len(classes) == 1:
            return derive(seed, next(iter(classes)))
        return derive(seed, *(number for pair in sorted(classes.items()) for number in pair))

    def trace(self, seed: int, unit: Callable[[int], str]) -> tuple[tuple[str, str], ...]:
        """(multiprocessor, what it gave), in order of their numbers."""
        return tuple((unit(number), text(derive(seed, *sorted(sums)))) for number, sums in sorted(self.sums.items()))


class SmVote:
    """See the module."""

    def __init__(self) -> None:
        self._injector: Injector | None = None

    def cases(self, ctx: Context) -> tuple[Case, ...]:
        """Return one case a kind of unit; see `burnin.workloads.Workload`."""
        if ctx.device.type == "cuda" and not have_triton():
            raise MissingError("triton is not installed; the test consists of a kernel of our own")
        if ctx.device.type == "cuda" and not arch_of_device(ctx.device).unit:
            raise MissingError("this GPU does not tell on which multiprocessor a program runs")
        return tuple(
            Case(
                test=TEST,
                name=tile.name,
                dtype=tile.dtype,
                exact=True,
                rate_name=f"{TEST.replace('.', '_')}_{tile.name.replace(' ', '_')}_flops_per_second",
                flops=_flops(tile),
            )
            for tile in _tiles(ctx)
        )

    def ballot(self, ctx: Context, case: Case, *, iteration: int, seed: int, launches: int) -> Ballot:
        """Launch on all multiprocessors `launches` times; see `burnin.workloads.Workload`."""
        tile = _tile(ctx, case)
        a, bt = _operands(ctx, tile, seed)
        injector = self._injector = injector_of(ctx, self._injector)
        out, units = _outputs(ctx, tile)
        watch, made, fired, written = Stopwatch(ctx.device), list[_Launch](), 0, False
        with strict_math(tf32=False):
            _compute(ctx, tile, a, bt, out=out, units=units)  # compiles
            poison(out)
            for _ in range(launches):
                watch.start()
                _compute(ctx, tile, a, bt, out=out, units=units)
                watch.stop()
                fired += _strike(injector, tile, out, units)
                made.append(_summed(tile, out, units, seed))
                written = written or not bool((out.view(-1).view(torch.uint8) == stale_byte(out.dtype)).all())
                ctx.alive()
        if not written:  # on all GPUs alike, no vote would see it
            raise RuntimeError(f"none of {launches} launches wrote its output: nothing was computed")
        fingerprints, odd = tally([one.fingerprint(seed) for one in made])
        visited = {number for one in made for number in one.sums}
        complete = launches if len(visited) >= _unit_count(ctx) else 0
        return Ballot(
            case=case.name,
            iteration=iteration,
            seed=seed,
            fingerprints=fingerprints,
            launches=complete,
            bytes=out.nbytes * complete,
            flops=_flops(tile) * launches,
            elapsed_s=watch.elapsed_s(),
            trace=made[odd].trace(seed, _namer(ctx)),
            fired=fired,
        )

    def prove(self, ctx: Context, case: Case, *, seed: int) -> Proof:
        """Compare every program's tile with the CPU's; a refutation names the multiprocessors."""
        tile = _tile(ctx, case)
        out, units = self._launch_once(ctx, tile, seed)
        golden = _word_sum(_right(tile, seed), seed)
        launched = _summed(tile, out, units, seed)
        wrong = [number for number, sums in sorted(launched.sums.items()) if set(sums) != {golden}]
        if not wrong:
            fingerprint = text(derive(seed, golden))
            return Proof(case=case.name, seed=seed, fingerprint=fingerprint, why="every tile is equal to the CPU's")
        name = _namer(ctx)
        named = ", ".join(name(number) for number in wrong[:8]) + (" …" if len(wrong) > 8 else "")  # noqa: PLR2004
        why = f"{len(wrong)} of {len(launched.sums)} multiprocessors differ from the CPU: {named}"
        return Proof(case=case.name, seed=seed, fingerprint=None, why=why)

    def examine(
        self, ctx: Context, case: Case, *, seed: int, launches: int, right: str | None, tiles: tuple[int, ...]
    ) -> Elements | None:
        """Compare the first wrong tile with the CPU's; see `burnin.workloads.Workload`."""
        del right, tiles
        tile = _tile(ctx, case)
        golden = _right(tile, seed)
        for _ in range(launches):
            out, _units = self._launch_once(ctx, tile, seed)
            for number, found in enumerate(out.view(tile.programs, tile.edge, tile.edge).cpu()):
                comparison = Comparison(tile.edge)
                comparison.add(found, golden, row=number * tile.edge)
                elements = comparison.elements()
                if elements is not None:
                    return elements
        return None

    def _launch_once(self, ctx: Context, tile: _Tile, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
        a, bt = _operands(ctx, tile, seed)
        injector = self._injector = injector_of(ctx, self._injector)
        out, units = _outputs(ctx, tile)
        with strict_math(tf32=False):
            _compute(ctx, tile, a, bt, out=out, units=units)
        _strike(injector, tile, out, units)
        ctx.alive()
        return out, units


def _tiles(ctx: Context) -> tuple[_Tile, ...]:
    if ctx.device.type != "cuda":
        kinds: dict[str, torch.dtype] = {"bf16": torch.bfloat16, "fp32": torch.float32, "int8": torch.int8}
        return tuple(_made(ctx, name, dtype, EDGE_CPU, DEPTH_CPU) for name, dtype in kinds.items())
    arch = arch_of_device(ctx.device)
    names = ("bf16", "fp16", *(("tf32",) if arch.tf32 else ()), *arch.fp8, "int8")
    matrix = tuple(_made(ctx, name, DTYPES[name], 128, DEPTH) for name in names)
    return matrix + tuple(_made(ctx, name, dtype, 64, DEPTH_PLAIN) for name, dtype in PLAIN.items())


def _made(ctx: Context, name: str, dtype: torch.dtype, edge: int, k: int) -> _Tile:
    if dtype is torch.int32:
        magnitude = exact_magnitude(torch.float64, k, accumulator_bits=30)
    else:
        arch = arch_of_device(ctx.device)
        plan = Plan(dtype=name if name in DTYPES else "fp32", path="triton", m=1, k=k, n=1, rounded=False, arch=arch)
        magnitude = plan.magnitude
    programs = PROGRAMS_PER_UNIT * _unit_count(ctx) if ctx.device.type == "cuda" else 2 * STAND_IN_UNITS
    return _Tile(dtype=name, operand=dtype, edge=edge, k=k, magnitude=magnitude, programs=programs)


def _tile(ctx: Context, case: Case) -> _Tile:
    for tile in _tiles(ctx):
        if tile.name == case.name:
            return tile
    raise ValueError(f"{TEST} has no case {case.name!r} on backend {ctx.backend}")


def _flops(tile: _Tile) -> int:
    return 2 * tile.edge * tile.edge * tile.k * tile.programs


def _unit_count(ctx: Context) -> int:
    if ctx.device.type != "cuda":
        return STAND_IN_UNITS
    return int(torch.cuda.get_device_properties(ctx.device).multi_processor_count)


def _namer(ctx: Context) -> Callable[[int], str]:
    """Return how a multiprocessor is called; see `burnin.kernels.units.unit_id` for the numbers."""
    if ctx.device.type == "cuda" and arch_of_device(ctx.device).unit == "amd":
        return lambda number: f"xcd{number >> 8}.se{number >> 5 & 7}.sh{number >> 4 & 1}.cu{number & 15:02d}"
    return lambda number: f"sm{number:03d}"


def _operands(ctx: Context, tile: _Tile, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    a, bt = (torch.empty(tile.edge, tile.k, dtype=tile.operand, device=ctx.device) for _ in range(2))
    fill_integers(a, derive(seed, TEST, tile.dtype, "a"), tile.magnitude)
    fill_integers(bt, derive(seed, TEST, tile.dtype, "b"), tile.magnitude)
    return a, bt


def _right(tile: _Tile, seed: int) -> torch.Tensor:
    """Return the tile as the CPU computes it: integers, exact in float64."""
    here = Context(backend="cpu", device=torch.device("cpu"), inject=None, alive=lambda: None)
    a, bt = (operand.to(torch.float64) for operand in _operands(here, tile, seed))
    return (a @ bt.t()).to(tile.output)


def _outputs(ctx: Context, tile: _Tile) -> tuple[torch.Tensor, torch.Tensor]:
    out = torch.empty(tile.programs * tile.edge, tile.edge, dtype=tile.output, device=ctx.device)
    poison(out)
    return out, torch.zeros(tile.programs, dtype=torch.int32, device=ctx.device)


def _strike(injector: Injector, tile: _Tile, out: torch.Tensor, units: torch.Tensor) -> bool:
    """Let the planted fault strike what one multiprocessor computed; return whether anything changed."""
    if injector.inject is None or FAULTS[injector.inject.fault].whole:
        return injector.hit(out, op="tile")
    numbers = sorted(set(units.tolist()))
    mine = units == numbers[derive(injector.inject.seed, "unit") % len(numbers)]
    tiles = out.view(tile.programs, tile.edge, tile.edge)
    struck = tiles[mine].view(-1, tile.edge)
    changed = injector.hit(struck, op="tile")
    tiles[mine] = struck.view(-1, tile.edge, tile.edge)
    return changed


def _compute(
    ctx: Context, tile: _Tile, a: torch.Tensor, bt: torch.Tensor, *, out: torch.Tensor, units: torch.Tensor
) -> None:
    if ctx.device.type == "cuda":
        precision = "tf32" if tile.dtype == "tf32" else "ieee"
        unit = arch_of_device(ctx.device).unit
        same_tile_on_device(a, bt, out, units, plain=tile.dtype in PLAIN, precision=precision, unit=unit)
        return
    for number, piece in enumerate(out.view(tile.programs, tile.edge, tile.edge)):
        piece.copy_(a.to(torch.float32) @ bt.to(torch.float32).t())
        units[number] = number % STAND_IN_UNITS


def _summed(tile: _Tile, out: torch.Tensor, units: torch.Tensor, seed: int) -> _Launch:
    words = out.view(torch.int32).view(tile.programs, -1)
    weights = _weights(words.shape[1], seed, out.device)
    sums = torch.cat([_weighed(words[at : at + CHUNK], weights) for at in range(0, tile.programs, CHUNK)])
    by_unit: dict[int, Counter[int]] = {}
    for number, value in zip(units.tolist(), sums.tolist(), strict=True):
        by_unit.setdefault(int(number), Counter())[int(value) & MASK64] += 1
    return _Launch(sums=by_unit)


def _word_sum(tile: torch.Tensor, seed: int) -> int:
    words = tile.contiguous().view(torch.int32).view(1, -1)
    return int(_weighed(words, _weights(words.shape[1], seed, tile.device))[0]) & MASK64


def _weights(count: int, seed: int, device: torch.device) -> torch.Tensor:
    """Return random odd weights below 2**32 (int64), the same for every tile: equal tiles have equal sums."""
    random = torch.empty(count, dtype=torch.int32, device=device)
    fill_bits(random, derive(seed, TEST, "weights"))
    return (random.to(torch.int64) & 0xFFFF_FFFF) | 1


def _weighed(words: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Return Σ (word + 1)·weight modulo 2**64 a row, as the checksum of `burnin.checksum` does."""
    return (((words.to(torch.int64) & 0xFFFF_FFFF) + 1) * weights).sum(dim=1)
