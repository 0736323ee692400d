"""`thermal`: cold, on the way up, soaked and on the way down, slices of other tests in each of these bins.

Some faults show only above a temperature, or only while it changes. Each GPU is brought to its bins by a load of its
own, as far as its cooling lets it; what counts is that its results there are those of all others, and of the CPU.
"""

from dataclasses import dataclass, replace

import torch

from burnin.keys import derive
from burnin.seed import fill_normal
from burnin.spec import Ballot, Case, Elements, Proof
from burnin.workloads import Context, MissingError, Workload
from burnin.workloads.attention import Attention
from burnin.workloads.gemm import GemmExact, GemmVote
from burnin.workloads.integers import Integers
from burnin.workloads.pauses import now_s, rest

COLD, RAMP, SOAK, COOL = PHASES = ("cold", "ramp", "soak", "cool")
SLICES: tuple[type[Workload], ...] = (GemmExact, GemmVote, Attention, Integers)
"""Tests of which the first case is done in each bin."""
STEP_S = 2.5
"""Load before each slice of the ramp, and between two looks at the thermometer."""
SETTLED_CELSIUS, SETTLING_STEPS = 1.0, 4
"""Soaked: so many steps warmed it by less than this; cold: so many rests cooled it by less."""
SOAK_MAX_S, COOL_MAX_S = 90.0, 90.0
"""An H200 is within 1 °C of its end temperature after about a minute, and halfway down again sooner."""
MARGIN_CELSIUS = 3.0
EDGE = 4096
"""Of the square bf16 product that heats: at full power on every large GPU."""
IN_FLIGHT = 64
"""Products between two waits for the device: about 15 ms on an H200."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """One case of another test in one bin."""

    phase: str
    workload: Workload
    inner: Case
    case: Case


class Thermal:
    """See the module."""

    test = "thermal"

    def __init__(self) -> None:
        self._workloads = tuple(make() for make in SLICES)
        self._oven = Oven()

    def cases(self, ctx: Context) -> tuple[Case, ...]:
        """Return the slices of all bins, in the order of the cycle; see `burnin.workloads.Workload`.

        Raises:
            MissingError: Nothing tells how hot this device is.
        """
        if ctx.senses.read().temperature_celsius is None:
            missing = "install nvidia-ml-py or amdsmi" if ctx.backend == "cuda" else "a CPU's is not read"
            raise MissingError(f"nothing tells the temperature of this device: {missing}")
        return tuple(one.case for one in self._slices(ctx))

    def ballot(self, ctx: Context, case: Case, *, iteration: int, seed: int, launches: int) -> Ballot:
        """Bring the device to the bin, then launch; see `burnin.workloads.Workload`."""
        one = self._slice(ctx, case)
        facts = self._oven.bring(ctx, one.phase)
        ctx.begin()
        cast = one.workload.ballot(ctx, one.inner, iteration=iteration, seed=seed, launches=launches)
        return replace(cast, case=case.name, facts=facts)

    def prove(self, ctx: Context, case: Case, *, seed: int) -> Proof:
        """Prove the slice as its own test does, at whatever temperature: the golden is the same."""
        one = self._slice(ctx, case)
        return replace(one.workload.prove(ctx, one.inner, seed=seed), case=case.name)

    def examine(
        self, ctx: Context, case: Case, *, seed: int, launches: int, right: str | None, tiles: tuple[int, ...]
    ) -> Elements | None:
        """Bring the device to the bin again and examine as the slice's own test does."""
        one = self._slice(ctx, case)
        self._oven.bring(ctx, one.phase)
        return one.workload.examine(ctx, one.inner, seed=seed, launches=launches, right=right, tiles=tiles)

    def _slices(self, ctx: Context) -> list[Slice]:
        inner = []
        for workload in self._workloads:
            try:
                inner.append((workload, workload.cases(ctx)[0]))
            except MissingError:
                continue
        return [
            Slice(phase=phase, workload=workload, inner=case, case=_named(phase, case))
            for phase in PHASES
            for workload, case in inner
        ]

    def _slice(self, ctx: Context, case: Case) -> Slice:
        for one in self._slices(ctx):
            if one.case.name == case.name:
                return one
        raise ValueError(f"{self.test} has no case {case.name!r} on backend {ctx.backend}")


def _named(phase: str, case: Case) -> Case:
    name = f"{phase} {case.test} {case.name}"
    return replace(case, test=Thermal.test, name=name, rate_name=f"thermal_{phase}_{case.rate_name}")


class Oven:
    """Brings one device to its bins, and remembers how cold and how hot it has been. Every wait has an end."""

    def __init__(self) -> None:
        """Nothing is known of the device yet."""
        self._cold: float | None = None
        self._hot: float | None = None
        self._operands: tuple[torch.Tensor, ...] = ()

    def bring(self, ctx: Context, phase: str) -> tuple[tuple[str, float], ...]:
        """Heat or rest until the device is in the bin, or for as long as is allowed.

        Returns:
            (name, value) of the temperature before and after, and of the time that it took.
        """
        begun_s, begun = now_s(), _celsius(ctx)
        if self._cold is None:
            self._cold = self._settled(ctx)  # it may have worked until now
        halfway = self._cold + ((self._hot or begun) - self._cold) / 2
        if phase == COLD:
            self._cool(ctx, self._cold + MARGIN_CELSIUS)
        elif phase == RAMP:
            if self._hot is not None:
                self._cool(ctx, max(halfway, self._cold + MARGIN_CELSIUS))
            self._heat(ctx, STEP_S)
        elif phase == SOAK:
            self._soak(ctx)
        else:
            self._cool(ctx, max(halfway, self._cold + MARGIN_CELSIUS))
        return (
            ("temperature_begun_celsius", begun),
            ("temperature_reached_celsius", _celsius(ctx)),
            ("brought_seconds", now_s() - begun_s),
        )

    def _settled(self, ctx: Context) -> float:
        """Rest until it gets no colder: the temperature that is cold for this device, here and today."""
        seen = [_celsius(ctx)]
        for _ in range(round(COOL_MAX_S / STEP_S)):
            if len(seen) > SETTLING_STEPS and seen[-1 - SETTLING_STEPS] - seen[-1] < SETTLED_CELSIUS:
                break
            rest(ctx, STEP_S)
            seen.append(_celsius(ctx))
        return seen[-1]

    def _soak(self, ctx: Context) -> None:
        """Heat until it is as hot as it was, the first time until it gets no hotter."""
        seen = [_celsius(ctx)]
        for _ in range(round(SOAK_MAX_S / STEP_S)):
            if self._hot is not None and seen[-1] >= self._hot - MARGIN_CELSIUS:
                return
            if len(seen) > SETTLING_STEPS and seen[-1] - seen[-1 - SETTLING_STEPS] < SETTLED_CELSIUS:
                break
            self._heat(ctx, STEP_S)
            seen.append(_celsius(ctx))
        self._hot = seen[-1]

    def _cool(self, ctx: Context, celsius: float) -> None:
        for _ in range(round(COOL_MAX_S / STEP_S)):
            if _celsius(ctx) <= celsius:
                return
            rest(ctx, STEP_S)

    def _heat(self, ctx: Context, seconds: float) -> None:
        """Multiply full-mantissa numbers for so long; a simulated device is only told."""
        ctx.senses.passed(seconds, busy=True)
        if ctx.device.type != "cuda":
            ctx.alive()
            return
        if not self._operands:
            self._operands = tuple(torch.empty(EDGE, EDGE, dtype=torch.bfloat16, device=ctx.device) for _ in range(3))
            for number, operand in enumerate(self._operands):
                fill_normal(operand, derive(0, Thermal.test, number))
        left, right, out = self._operands
        end_s = now_s() + seconds
        while now_s() < end_s:
            for _ in range(IN_FLIGHT):
                torch.mm(left, right, out=out)
            torch.cuda.synchronize(ctx.device)
            ctx.alive()


def _celsius(ctx: Context) -> float:
    """The temperature now.

    Raises:
        RuntimeError: It cannot be read any more.
    """
    celsius = ctx.senses.read().temperature_celsius
    if celsius is None:
        raise RuntimeError("the temperature cannot be read any more")
    return celsius
