"""A host of eight simulated GPUs in one process: what the children answer in a run, the workloads answer here.

All healthy GPUs compute the same bits, so one computation speaks for seven; the broken GPU computes for itself, with
its fault planted in the real workloads. Everything above (session, votes, proofs, judge) is what a run uses.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from importlib import import_module
from typing import Any

import torch

from burnin.coverage.rules import Rule
from burnin.inject import Scene, scene
from burnin.processes.children import Answer, Heard
from burnin.processes.wire import Prove, Request, Vote
from burnin.spec import Ballot, Case, Device, Inject, Proof
from burnin.tests import Declaration
from burnin.verdict.evidence import Death, DeathKind
from burnin.workloads import Context, Workload

GPUS = 8
BACKEND = "sim"
COOL_CELSIUS, HOT_CELSIUS, WARMING_LAUNCHES = 30.0, 80.0, 10.0
"""A simulated GPU warms up towards `HOT_CELSIUS` with this time constant, in launches."""
UNITS: Mapping[str, str] = {
    "bf16": "16 bit",
    "fp16": "16 bit",
    "int8": "8 bit",
    "fp8e4m3": "8 bit",
    "fp8e4m3fnuz": "8 bit",
    "fp8e5m2": "8 bit",
    "fp8e5m2fnuz": "8 bit",
}
"""Dtype of a matrix product → the datapath that adds it up; every other is `WIDE`."""
MATRIX = ("gemm", "attention", "step", "overlap", "pulse", "thermal", "rate")
"""Beginnings of the names of tests that run on the matrix units; others compute in 32 bit what they store in less."""
WIDE = "32 bit"
DATAPATHS = ("16 bit", "8 bit", WIDE)


def devices(count: int = GPUS) -> tuple[Device, ...]:
    """The simulated devices."""
    return tuple(
        Device(gpu=f"SIM-{n}", index=n, sku="simulated", sm_count=1, memory_bytes=1 << 30, vote_key="simulated")
        for n in range(count)
    )


def unit_of(case: Case) -> str:
    """The datapath that a case exercises."""
    return UNITS.get(case.dtype, WIDE) if case.test.startswith(MATRIX) else WIDE


def _still() -> None:
    """Nobody watches for hangs here."""


def _context(inject: Inject | None) -> Context:
    return Context(backend=BACKEND, device=torch.device("cpu"), inject=inject, alive=_still)


Key = tuple[str, str, int]
"""(workload, case, seed)."""


@dataclass(slots=True)
class Healthy:
    """What a healthy GPU answers, computed once and kept: the same for all GPUs and all trials."""

    workloads: dict[str, Workload] = field(default_factory=dict)
    listed: dict[str, tuple[Case, ...]] = field(default_factory=dict)
    ballots: dict[tuple[Key, int], Ballot] = field(default_factory=dict)
    proofs: dict[Key, Proof] = field(default_factory=dict)
    right: dict[Key, list[torch.Tensor]] = field(default_factory=dict)
    """The results of one launch, in the order in which the workload hands them over."""

    def workload(self, name: str) -> Workload:
        """The workload "module:Class"."""
        if name not in self.workloads:
            self.workloads[name] = make(name)
        return self.workloads[name]

    def cases(self, declaration: Declaration) -> tuple[Case, ...]:
        """The cases of a test; none for a test that has no workload."""
        name = declaration.workload
        if name is None:
            return ()
        if name not in self.listed:
            self.listed[name] = self.workload(name).cases(_context(None))
        return self.listed[name]

    def case(self, request: Vote | Prove) -> Case:
        """The case of a request."""
        return next(case for case in self.listed[request.workload] if case.name == request.case)

    def ballot(self, request: Vote) -> Ballot:
        """A healthy ballot."""
        key = (request.workload, request.case, request.seed)
        if (key, request.launches) not in self.ballots:
            case, seen = self.case(request), list[torch.Tensor]()

            def ear(output: torch.Tensor, op: str, changed: bool) -> None:
                del op, changed
                if not (self.right.get(key) or len(seen) >= request.launches * 64):
                    seen.append(output.clone())

            with scene(Scene(case=case, ear=ear)):
                cast = self.workload(request.workload).ballot(
                    _context(None), case, iteration=0, seed=request.seed, launches=request.launches
                )
            self.ballots[key, request.launches] = cast
            self.right.setdefault(key, seen[: len(seen) // request.launches])
        return replace(self.ballots[key, request.launches], iteration=request.iteration)

    def proof(self, request: Prove) -> Proof:
        """A healthy proof."""
        key = (request.workload, request.case, request.seed)
        if key not in self.proofs:
            workload = self.workload(request.workload)
            self.proofs[key] = workload.prove(_context(None), self.case(request), seed=request.seed)
        return self.proofs[key]


def _plain(answer: Ballot | Proof) -> Answer:
    """The fields of an answer, as they would arrive over the wire; shallow, for nobody changes them."""
    return {one.name: getattr(answer, one.name) for one in fields(answer)}


def make(name: str) -> Workload:
    """A new workload "module:Class"."""
    module, _, attribute = name.partition(":")
    made: Workload = getattr(import_module(module), attribute)()
    return made


Meddle = Callable[[str, Request, Answer], Answer | None]
"""(GPU, request, right answer) → what it says instead; None: it says nothing, ever again."""


def honest(gpu: str, request: Request, answer: Answer) -> Answer | None:
    """Meddle with nothing."""
    del gpu, request
    return answer


@dataclass(slots=True)
class Host:
    """The crew of one trial; see `burnin.session.Crew`."""

    healthy: Healthy
    devices: tuple[Device, ...]
    unit: str | None = None
    """The datapath in which the planted fault sits; None: it is in none, and strikes everywhere."""
    onlookers: Sequence[Rule] = ()
    meddle: Meddle = honest
    independent: bool = False
    """Whether every GPU computes for itself, even the healthy ones: slow, for runs that must be clean."""
    deaths: list[Death] = field(default_factory=list)
    fired: int = 0
    launches: int = 0
    """Launches of the broken GPU, by which it warms up."""
    _broken: dict[tuple[str, str], Workload] = field(default_factory=dict)

    @property
    def living(self) -> tuple[str, ...]:
        """The GPUs that can still be asked."""
        dead = {death.gpu for death in self.deaths}
        return tuple(device.gpu for device in self.devices if device.gpu not in dead)

    def ask(
        self, asks: Mapping[str, Sequence[Request]], *, test: str, quiet_s: float, limit_s: float, heard: Heard
    ) -> None:
        """Answer all requests, GPU after GPU; see `burnin.processes.children.Children.ask`."""
        del limit_s
        for gpu, requests in asks.items():
            for request in requests:
                if gpu not in self.living:
                    break
                kind, why = DeathKind.HANG, f"silent for {quiet_s:.0f} s"
                try:
                    answer = self.meddle(gpu, request, self._answer(gpu, request))
                except (RuntimeError, ArithmeticError, ValueError) as error:  # as `burnin.processes.child` has it
                    answer, kind, why = None, DeathKind.CRASH, f"{type(error).__name__}: {error}"
                if answer is None:  # dies, is started again, dies again
                    self.deaths += [Death(gpu=gpu, test=test, kind=kind, why=why)] * 2
                    break
                heard(gpu, answer)

    def _answer(self, gpu: str, request: Request) -> dict[str, Any]:
        match request:
            case Vote():
                return {"ballot": _plain(self._ballot(gpu, request))}
            case Prove():
                return {"proof": _plain(self._proof(gpu, request))}
            case _:
                raise TypeError(f"a simulated host does not answer {type(request).__name__}")

    def _struck(self, request: Vote | Prove) -> Inject | None:
        """The fault, if what is asked for runs where it sits."""
        here = self.unit is None or unit_of(self.healthy.case(request)) == self.unit
        return request.inject if here else None

    def _ballot(self, gpu: str, request: Vote) -> Ballot:
        if self.independent:
            workload = self._workload(gpu, request.workload)
            return workload.ballot(
                _context(None),
                self.healthy.case(request),
                iteration=request.iteration,
                seed=request.seed,
                launches=request.launches,
            )
        right = self.healthy.ballot(request)
        if request.inject is None:
            return right
        self.launches += request.launches
        inject = self._struck(request)
        if inject is None:
            return right
        case = self.healthy.case(request)
        key = (request.workload, request.case, request.seed)
        one_launch = self.healthy.right.get(key, [])
        seen = 0
        for onlooker in self.onlookers:
            onlooker.begin(case)

        def ear(output: torch.Tensor, op: str, changed: bool) -> None:
            nonlocal seen
            del op, changed
            other = one_launch[seen % len(one_launch)] if one_launch else None
            other = other if other is not None and other.shape == output.shape else None
            seen += 1
            for onlooker in self.onlookers:
                onlooker.see(output, other)

        with scene(Scene(case=case, celsius=self._celsius, ear=ear)):
            cast = self._workload(gpu, request.workload).ballot(
                _context(inject), case, iteration=request.iteration, seed=request.seed, launches=request.launches
            )
        self.fired += cast.fired
        return cast

    def _proof(self, gpu: str, request: Prove) -> Proof:
        inject = self._struck(request) if request.inject is not None else None
        if inject is None:
            return self.healthy.proof(request)
        case = self.healthy.case(request)
        with scene(Scene(case=case, celsius=self._celsius)):
            return self._workload(gpu, request.workload).prove(_context(inject), case, seed=request.seed)

    def _workload(self, gpu: str, name: str) -> Workload:
        """The broken GPU's own: its injector counts launches over the whole trial."""
        if (gpu, name) not in self._broken:
            self._broken[gpu, name] = make(name)
        return self._broken[gpu, name]

    def _celsius(self) -> float:
        return HOT_CELSIUS - (HOT_CELSIUS - COOL_CELSIUS) * math.exp(-self.launches / WARMING_LAUNCHES)
