"""The child process of one GPU: hears requests, runs workloads, answers. It judges nothing.

It ends when its parent does: at the end of the line, and by the kernel's parent-death signal while it computes.
"""

import ctypes
import gc
import os
import signal
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from importlib import import_module
from typing import Any

import torch

from burnin import inject as injection
from burnin.collectives.fabric import Fabric, LostError, Simulated, StuckError, UnsupportedError
from burnin.crew import WORKERS_MAX
from burnin.processes import backends, settings
from burnin.processes.readers import open_reader
from burnin.processes.senses import Senses, Watch, heats, open_senses
from burnin.processes.wire import (
    CheckCores,
    Count,
    Discover,
    Examine,
    ListCases,
    Look,
    Lookout,
    Prove,
    Request,
    Rest,
    Vote,
    WireError,
    decode,
    encode,
    plain,
    unpack,
)
from burnin.spec import Case, Inject, SpecError
from burnin.verdict.evidence import DeathKind
from burnin.verdict.health import Felt, Reader
from burnin.workloads import Context, MissingError, Workload, hostcpu
from burnin.workloads.pauses import rest

ALIVE_EVERY_S = 0.5
SIMULATED_LAUNCH_S = 0.001
"""What a launch counts for on the clock of a simulated GPU: the work of a whole level warms it by a few degrees."""
_PR_SET_PDEATHSIG = 1


def main(line: socket.socket, setup: Mapping[str, Any]) -> None:
    """Serve requests until the line ends.

    `setup`: backend; of a GPU also gpu (id), ordinal (torch's), threads, world (GPUs in the run), retention_s; of one
    in a gang also gang, see `burnin.collectives.group.Group`.
    """
    torch.set_num_threads(min(setup.get("threads", 1), WORKERS_MAX))  # more wait for each other, or for a busy core
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's; the parent decides what it means
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    service = _Service(line, setup)
    try:
        for request in _requests(line):
            _say(line, service.answer(request))
    except (BrokenPipeError, ConnectionResetError):
        return  # the parent is gone
    except (RuntimeError, ArithmeticError, MemoryError, OSError, ImportError, LookupError, ValueError) as error:
        # Whatever the libraries raise is this GPU's crash, told in one line; bugs of other kinds show themselves.
        text = (str(error).strip() or "no message").splitlines()[0]
        kinds: dict[type[Exception], DeathKind] = {StuckError: DeathKind.HANG, LostError: DeathKind.LOST}
        kind = kinds.get(type(error), DeathKind.CRASH)
        failed = {"failed": f"{type(error).__name__}: {text:.300}", "kind": kind, "reached": service.reached}
        _say(line, failed)


def _say(line: socket.socket, message: Mapping[str, Any]) -> None:
    line.sendall(encode(message))


def _requests(line: socket.socket) -> Iterator[Request]:
    with line.makefile("rb") as lines:
        for text in lines:
            yield unpack(decode(text))


class _Service:
    """Answers requests; keeps the workloads, which keep compiled kernels and buffers."""

    def __init__(self, line: socket.socket, setup: Mapping[str, Any]) -> None:
        self._line = line
        self._backend: str = setup["backend"]
        self._gpu: str = setup.get("gpu", "")
        self._ordinal: int = setup.get("ordinal", 0)
        self._gang: Mapping[str, Any] | None = setup.get("gang")
        self._fabric: Fabric | None = Simulated(setup["world"]) if setup.get("world") else None
        self.reached = 0
        """Ballots that this process has begun."""
        self._workloads: dict[str, Workload] = {}
        self._cases: dict[str, dict[str, Case]] = {}
        self._said_s = time.perf_counter()
        self._counters: Reader | None = None
        self._felt: Senses | None = None
        self._retention_s: float = setup.get("retention_s", 0.0)
        self._watch: Watch | None = None
        """Of the ballot in progress."""

    def answer(self, request: Request) -> dict[str, Any]:
        """Do what is asked. Raises what the libraries raise."""
        match request:
            case Discover(backend=backend, gpus=gpus, host=host):
                answer = backends.discover(backend, gpus=gpus, host=host)
            case ListCases(test=test, workload=workload, inject=inject):
                answer = self._list(test, workload, inject)
            case Vote():
                answer = self._vote(request)
            case Prove():
                answer = self._prove(request)
            case Examine():
                answer = self._examine(request)
            case Count():
                answer = {"counters": asdict(self._reader().counters())}
            case CheckCores(seed=seed):
                answer = {"cores": hostcpu.check(seed, alive=self._alive)}
            case Rest() | Look() | Lookout():
                answer = self._beside(request)
        return answer

    def _beside(self, request: Rest | Look | Lookout) -> dict[str, Any]:
        """Do what computes nothing."""
        match request:
            case Rest(seconds=seconds):
                return self._rest(seconds)
            case Look(backend=backend, gpus=gpus):
                return {"found": {gpu: asdict(one) for gpu, one in settings.settings_of(backend, gpus).items()}}
            case Lookout(backend=backend, gpus=gpus, own=own):
                return {"users": settings.watch(backend, gpus, own, alive=self._alive)}

    def _rest(self, seconds: float) -> dict[str, Any]:
        if self._backend == "cuda":  # what is kept for the next allocation here is missing elsewhere
            gc.collect()
            torch.cuda.empty_cache()
        rest(self._context(None), seconds)
        self._begin()
        assert self._watch is not None  # noqa: S101 - it has just begun
        felt, self._watch = self._watch.end(), None
        return {"felt": asdict(felt)}

    def _prove(self, request: Prove) -> dict[str, Any]:
        ctx = self._context(request.inject)
        case = self._case(request.workload, request.case, ctx)
        with self._scene(case), hostcpu.only(request.core):
            proof = self._workload(request.workload).prove(ctx, case, seed=request.seed)
        return {"proof": asdict(replace(proof, core=request.core))}

    def _vote(self, request: Vote) -> dict[str, Any]:
        self._join()
        self.reached += 1
        ctx = self._context(request.inject, start_s=request.start_s)
        case = self._case(request.workload, request.case, ctx)
        ctx.senses.passed(request.launches * SIMULATED_LAUNCH_S, busy=True)
        self._begin()
        try:
            with self._scene(case):
                ballot = self._workload(request.workload).ballot(
                    ctx, case, iteration=request.iteration, seed=request.seed, launches=request.launches
                )
        except UnsupportedError as error:
            return {"unsupported": str(error)}
        felt = self._watch.end() if self._watch is not None else Felt()
        self._watch = None
        return {"ballot": plain(ballot), "felt": asdict(felt)}

    def _examine(self, request: Examine) -> dict[str, Any]:
        ctx = self._context(request.inject)
        case = self._case(request.workload, request.case, ctx)
        with self._scene(case):
            elements = self._workload(request.workload).examine(
                ctx, case, seed=request.seed, launches=request.launches, right=request.right, tiles=request.tiles
            )
        return {"elements": asdict(elements) if elements is not None else None}

    def _list(self, test: str, workload: str, inject: Inject | None) -> dict[str, Any]:
        try:
            cases = self._workload(workload).cases(self._context(None))
        except MissingError as missing:
            return {"cases": [], "refused": "", "planted": "", "missing": str(missing)}
        if any(case.test != test for case in cases):
            raise WireError(f"{workload} has cases of another test than {test}")
        refused = planted = ""
        if inject is not None:
            try:
                able = [case for case in cases if not case.missing]
                planted = injection.check(inject, able, heats=lambda case: heats(self._backend, case.test))
            except SpecError as error:
                refused = str(error)
        return {"cases": [asdict(case) for case in cases], "refused": refused, "planted": planted, "missing": ""}

    def _workload(self, name: str) -> Workload:
        if name not in self._workloads:
            module, _, attribute = name.partition(":")
            made: Workload = getattr(import_module(module), attribute)()
            self._workloads[name] = made
        return self._workloads[name]

    def _case(self, workload: str, name: str, ctx: Context) -> Case:
        if workload not in self._cases:
            self._cases[workload] = {case.name: case for case in self._workload(workload).cases(ctx)}
        return self._cases[workload][name]

    def _join(self) -> None:
        """Join the gang, which takes all of its processes: not before there is something to do."""
        if self._gang is not None:
            device = backends.torch_device(self._backend, self._ordinal)
            self._fabric = import_module("burnin.collectives.group").Group(self._gang, device)
            self._gang = None

    def _context(self, inject: Inject | None, *, start_s: float | None = None) -> Context:
        return Context(
            backend=self._backend,
            device=backends.torch_device(self._backend, self._ordinal),
            inject=inject,
            alive=self._alive,
            fabric=self._fabric,
            senses=self._senses(),
            start_s=start_s,
            retention_s=self._retention_s,
            begin=self._begin,
        )

    def _begin(self) -> None:
        """Feel anew. How often a simulated GPU is read must not depend on how fast this machine is."""
        clock = time.perf_counter if self._backend != "sim" else lambda: 0.0
        self._watch = Watch(self._senses().read, clock=clock)

    def _senses(self) -> Senses:
        if self._felt is None:
            self._felt = open_senses(self._backend, self._gpu, self._reader())
        return self._felt

    def _scene(self, case: Case) -> AbstractContextManager[None]:
        """What a planted fault may depend on; the temperature is read only by one that does."""
        return injection.scene(injection.Scene(case=case, celsius=lambda: self._senses().read().temperature_celsius))

    def _reader(self) -> Reader:
        if self._counters is None:
            self._counters = open_reader(self._backend, self._gpu)
        return self._counters

    def _alive(self) -> None:
        if self._watch is not None:
            self._watch.look()
        now_s = time.perf_counter()
        if now_s - self._said_s >= ALIVE_EVERY_S:
            self._said_s = now_s
            _say(self._line, {"alive": os.getpid(), "reached": self.reached})
