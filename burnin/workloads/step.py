"""One training step of a small transformer, hashed operation by operation: what a training job would suffer.

Forward, backward and AdamW from the same initial state at every launch. Every operation is reproducible by itself
(products, softmax, sums; no scatter, no atomics, no fused attention backward), so healthy GPUs of a kind agree on every
bit, and the first operation that differs is where the fault struck.
"""

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass

import torch
from torch.nn import functional

from burnin.checksum import checksum, checksum_into, text
from burnin.inject import FAULTS, Accumulator, Injector, stale_byte
from burnin.keys import MASK64, derive
from burnin.seed import fill_normal
from burnin.spec import Ballot, Case, Elements, Inject, Proof
from burnin.workloads import Context
from burnin.workloads.launches import Stopwatch, injector_of, strict_math, tally

LEARNING_RATE = 1e-3
BETA1 = 0.9
BETA2 = 0.95
EPSILON = 1e-8
WEIGHT_DECAY = 0.1
OPERATIONS = ("norm1", "qkv", "scores", "softmax", "context", "proj", "norm2", "gate", "silu", "down")
"""Traced operations of one layer in order of execution."""
MATRICES = ("qkv", "proj", "gate", "down")

See = Callable[[str, torch.Tensor, Accumulator | None], torch.Tensor]
"""(name, output, accumulator) → output, after the planted fault and the checksum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Dimensions of the transformer."""

    dtype: torch.dtype
    layers: int
    batch: int
    tokens: int
    width: int
    heads: int
    hidden: int

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return name → shape of every parameter, in order of use; matrices are (out, in)."""
        sizes: dict[str, tuple[int, ...]] = {}
        for layer in range(self.layers):
            sizes |= {
                f"layer{layer}.norm1": (self.width,),
                f"layer{layer}.qkv": (3 * self.width, self.width),
                f"layer{layer}.proj": (self.width, self.width),
                f"layer{layer}.norm2": (self.width,),
                f"layer{layer}.gate": (self.hidden, self.width),
                f"layer{layer}.down": (self.width, self.hidden),
            }
        return sizes

    def operations(self) -> tuple[str, ...]:
        """Return every traced operation of the forward pass, in order."""
        return tuple(f"layer{layer}.{name}" for layer in range(self.layers) for name in OPERATIONS)

    def trace(self) -> tuple[str, ...]:
        """Return every traced name in order: forward, loss, gradients (last layer first), updated parameters."""
        names = list(self.shapes())
        return (*self.operations(), "loss", *(f"grad.{n}" for n in reversed(names)), *(f"param.{n}" for n in names))

    def flops(self) -> int:
        """Return the multiplications and additions of one step's products (backward counts twice the forward)."""
        rows = self.batch * self.tokens
        weights = 4 * self.width * self.width + 2 * self.width * self.hidden
        attention = 2 * self.tokens * self.width
        return 3 * 2 * rows * (weights + attention) * self.layers


SIZE_CUDA = Size(dtype=torch.bfloat16, layers=2, batch=4, tokens=1024, width=2048, heads=16, hidden=8192)
SIZE_CPU = Size(dtype=torch.float32, layers=2, batch=2, tokens=16, width=64, heads=4, hidden=128)


class Step:
    """`step`: see the module; its one case is not exact."""

    def __init__(self) -> None:
        self._injector: Injector | None = None
        self._warm = False

    def cases(self, ctx: Context) -> tuple[Case, ...]:
        """Return the one case; see `burnin.workloads.Workload`."""
        size = _size(ctx)
        dtype = "bf16" if size.dtype is torch.bfloat16 else "fp32"
        name = f"{dtype} transformer {size.layers}x{size.width}"
        return (Case(test="step", name=name, dtype=dtype, exact=False, rate_name=f"step_{dtype}_flops_per_second"),)

    def ballot(self, ctx: Context, case: Case, *, iteration: int, seed: int, launches: int) -> Ballot:
        """Run the step `launches` times from the state of `seed`; see `burnin.workloads.Workload`.

        The measured time includes the checksums, which sit between the operations.

        Raises:
            RuntimeError: No operation wrote its output.
        """
        size = _size(ctx)
        names = size.trace()
        state = _state(ctx, size, seed)
        injector = self._injector = injector_of(ctx, self._injector)
        slots = torch.zeros(launches, len(names), dtype=torch.int64, device=ctx.device)
        targets = _targets(ctx.inject, size)
        watch = Stopwatch(ctx.device)
        fired = nbytes = 0
        with strict_math(tf32=False):
            if not self._warm:
                _step(size, state, lambda _name, output, _accumulator: output)
                self._warm = True
            for launch in range(launches):
                recorder = _Recorder(names, slots[launch], _checksum_seed(seed), injector, targets)
                watch.start()
                _step(size, state, recorder.see)
                watch.stop()
                fired += recorder.fired
                nbytes += sum(recorder.nbytes.values())
                ctx.alive()
        rows = [[int(value) & MASK64 for value in row] for row in slots.tolist()]
        if all(_untouched(dict(zip(names, row, strict=True)), recorder.nbytes, size, seed) for row in rows):
            raise RuntimeError(f"none of {launches} launches wrote an output: nothing was computed")
        fingerprints, odd = tally([derive(seed, *row) for row in rows])
        return Ballot(
            case=case.name,
            iteration=iteration,
            seed=seed,
            fingerprints=fingerprints,
            launches=launches,
            bytes=nbytes,
            flops=size.flops() * launches,
            elapsed_s=watch.elapsed_s(),
            trace=tuple((name, text(value)) for name, value in zip(names, rows[odd], strict=True)),
            fired=fired,
        )

    def prove(self, ctx: Context, case: Case, *, seed: int) -> Proof:
        """Raise ValueError: a training step has no golden."""
        raise ValueError(f"{case.test} {case.name} (seed {seed}, {ctx.backend}) is not exact and has no golden")

    def examine(
        self, ctx: Context, case: Case, *, seed: int, launches: int, right: str | None, tiles: tuple[int, ...]
    ) -> Elements | None:
        """Return None: the trace names the operation, and its tensors are not kept."""
        del ctx, case, seed, launches, right, tiles
        return None


def _checksum_seed(seed: int) -> int:
    return derive(seed, "step", "checksum")


def _targets(inject: Inject | None, size: Size) -> frozenset[str]:
    """What the planted fault strikes: one operation of the forward pass; a fault of whole launches, all of it."""
    operations = size.operations()
    if inject is None:
        return frozenset()
    if FAULTS[inject.fault].whole:
        return frozenset((*operations, "loss"))
    return frozenset({operations[derive(inject.seed, "op") % len(operations)]})


def _untouched(row: Mapping[str, int], nbytes: Mapping[str, int], size: Size, seed: int) -> bool:
    """Whether the loss, and then every operation of the forward pass, is what nobody wrote."""

    def blank(name: str) -> int:
        nothing = torch.full((nbytes[name],), stale_byte(torch.float32), dtype=torch.uint8)
        return checksum(nothing, _checksum_seed(seed))

    return all(row[name] == blank(name) for name in ("loss", *size.operations()))  # a loss is small: most end there


class _Recorder:
    """Writes the checksum of each named tensor into its slot, after the planted fault struck the chosen operations."""

    def __init__(
        self, names: tuple[str, ...], slots: torch.Tensor, seed: int, injector: Injector, targets: Container[str]
    ) -> None:
        self._index = {name: index for index, name in enumerate(names)}
        self._slots = slots
        self._seed = seed
        self._injector = injector
        self._targets = targets
        self.fired = False
        self.nbytes: dict[str, int] = {}

    def see(self, name: str, output: torch.Tensor, accumulator: Accumulator | None) -> torch.Tensor:
        """Strike, checksum and return the output."""
        # .data: the fault changes memory behind autograd's back, as hardware would.
        value = output.data
        if name in self._targets:
            value = value.contiguous()
            self.fired |= self._injector.hit(value, accumulator)
            if value.data_ptr() != output.data_ptr():
                output.data.copy_(value)
        index = self._index[name]
        checksum_into(self._slots[index : index + 1], value, self._seed)
        self.nbytes[name] = value.nbytes
        return output


def _size(ctx: Context) -> Size:
    return SIZE_CUDA if ctx.backend == "cuda" else SIZE_CPU


def _state(ctx: Context, size: Size, seed: int) -> dict[str, torch.Tensor]:
    """Return inputs, targets and parameters of `seed`; scales are powers of two, so that they stay exact."""
    state = {}
    shapes = size.shapes() | dict.fromkeys(("input", "target"), (size.batch * size.tokens, size.width))
    for name, shape in shapes.items():
        value = torch.empty(shape, dtype=size.dtype, device=ctx.device)
        fill_normal(value, derive(seed, "step", name))
        # About 1/sqrt(inputs) for matrices; norms begin near one.
        scale = 2.0 ** -((shape[1].bit_length()) // 2) if len(shape) > 1 and name not in {"input", "target"} else 1.0
        state[name] = value.mul_(2**-4).add_(1) if len(shape) == 1 else value.mul_(scale)
    return state


def _step(size: Size, state: dict[str, torch.Tensor], see: See) -> None:
    """Run forward, backward and one AdamW update, and show every result to `see`; the state is not changed."""
    names = list(size.shapes())
    leaves = {name: state[name].detach().clone().requires_grad_() for name in names}
    x = state["input"]
    for layer in range(size.layers):
        x = _layer(
            size, x, {name: leaves[f"layer{layer}.{name}"] for name in ("norm1", "norm2", *MATRICES)}, layer, see
        )
    loss = see("loss", (x.to(torch.float32) - state["target"].to(torch.float32)).square().mean(), None)
    gradients = dict(zip(names, torch.autograd.grad(loss, list(leaves.values())), strict=True))
    for name in reversed(names):
        see(f"grad.{name}", gradients[name], None)
    for name in names:
        see(f"param.{name}", _adamw(leaves[name].detach(), gradients[name]), None)


def _layer(size: Size, x: torch.Tensor, weights: dict[str, torch.Tensor], layer: int, see: See) -> torch.Tensor:
    """Return the residual stream (batch·tokens, width) after one layer."""

    def op(name: str, output: torch.Tensor, accumulator: Accumulator | None = None) -> torch.Tensor:
        return see(f"layer{layer}.{name}", output, accumulator)

    def linear(name: str, inputs: torch.Tensor) -> torch.Tensor:
        weight = weights[name]
        return op(name, inputs @ weight.t(), _recompute(inputs, weight))

    def heads(part: torch.Tensor) -> torch.Tensor:
        return part.reshape(size.batch, size.tokens, size.heads, -1).transpose(1, 2)

    q, k, v = (heads(part) for part in linear("qkv", op("norm1", _norm(x, weights["norm1"]))).chunk(3, dim=-1))
    scores = op("scores", (q @ k.transpose(-1, -2)) * (size.width // size.heads) ** -0.5)
    future = torch.ones(size.tokens, size.tokens, dtype=torch.bool, device=x.device).triu(1)
    shares = op("softmax", torch.softmax(scores.masked_fill(future, float("-inf")), dim=-1))
    context = op("context", (shares @ v).transpose(1, 2).reshape(x.shape))
    x = x + linear("proj", context)
    hidden = linear("gate", op("norm2", _norm(x, weights["norm2"])))
    return x + linear("down", op("silu", functional.silu(hidden)))


def _norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return x divided by the root of its mean square (in float32), times the weight."""
    wide = x.to(torch.float32)
    return (wide * torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + 1e-6)).to(x.dtype) * weight


def _recompute(inputs: torch.Tensor, weight: torch.Tensor) -> Accumulator | None:
    """Return the float32 sums behind a rounded product, for the injector; float32 products are their own sums."""
    if weight.dtype is torch.float32:
        return None

    def piece(rows: slice, columns: slice) -> torch.Tensor:
        return inputs.detach()[rows].to(torch.float32) @ weight.detach()[columns].to(torch.float32).t()

    return piece


def _adamw(parameter: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    """Return the parameter after the first AdamW step (moments begin at zero), computed in float32, rounded once."""
    wide, slope = parameter.to(torch.float32), gradient.to(torch.float32)
    first = slope * (1 - BETA1) / (1 - BETA1)
    second = slope.square() * (1 - BETA2) / (1 - BETA2)
    moved = wide * (1 - LEARNING_RATE * WEIGHT_DECAY) - LEARNING_RATE * first / (second.sqrt() + EPSILON)
    return moved.to(parameter.dtype)
