"""Hosts on which nothing is broken, or the harness is (F19-F22): none of their GPUs may be blamed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from burnin.coverage.host import Healthy, Host, Meddle, devices, honest
from burnin.coverage.trials import LAUNCHES, Suite, run_host, world_seed
from burnin.keys import derive
from burnin.processes.children import Answer
from burnin.processes.wire import Prove, Request, Vote
from burnin.spec import Device, Inject, Verdict
from burnin.verdict.links import DISTINCT

Cases = frozenset[tuple[str, str]]
"""(test, case) pairs."""
OTHER_FIRMWARE = 3
"""GPUs of the eight with another firmware, and so another vote key."""
BUG = "F03"
"""How a bug shows in results: any model that is the same at every launch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A host, and what may be said of it."""

    id: str
    what: str
    judged: bool
    """Whether the run may be judged; if not, its harness is broken."""
    meddle: Meddle = honest
    mixed: bool = False
    """Whether some GPUs have another firmware."""
    bug: str = BUG
    bug_on: tuple[int, ...] = ()
    """GPUs that compute wrong in the same way."""
    host_cpu: str = ""
    """What the test of the host's CPU found."""
    launches: int = LAUNCHES


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What was said of it."""

    scenario: Scenario
    verdict: Verdict
    why: str
    blamed: tuple[int, ...]
    gpus: tuple[Verdict, ...]
    launches: int

    @property
    def kept(self) -> bool:
        """Whether nobody was blamed, and on a broken harness nothing was judged."""
        return not self.blamed and (self.scenario.judged or self.verdict is Verdict.NOT_JUDGED)


def _noise(*what: str | int) -> str:
    return f"{derive(19, *what):016x}"


def _unsteady(gpu: str, request: Request, answer: Answer, floats: Cases) -> Answer | None:
    """Atomics: every GPU adds in another order at every launch."""
    if not isinstance(request, Vote) or (request.test, request.case) not in floats:
        return answer
    ballot = answer["ballot"]
    first = ballot["fingerprints"][0][0]
    odd = _noise(gpu, request.case, request.seed, request.iteration)
    return answer | {"ballot": ballot | {"fingerprints": ((first, 1), (odd, ballot["launches"] - 1))}}


def _reordered(gpu: str, request: Request, answer: Answer, floats: Cases) -> Answer | None:
    """A reduction whose order depends on what ran before it: the same on all GPUs, another one each time."""
    del gpu
    if not isinstance(request, Vote) or (request.test, request.case) not in floats:
        return answer
    return _says(answer, _noise(request.case, request.seed, request.iteration))


def _other_order(gpu: str, request: Request, answer: Answer) -> Answer | None:
    """A collective that adds in another order each time, as one does that reduces in the switch."""
    if not isinstance(request, Vote) or request.test != "collective.repro":
        return answer
    trace = ((DISTINCT, "3"), ("bits", _noise(gpu, request.case, request.seed)))
    return answer | {"ballot": answer["ballot"] | {"trace": trace}}


def _other_rounding(gpu: str, request: Request, answer: Answer, floats: Cases) -> Answer | None:
    """Another firmware chooses other kernels: float results differ between firmwares, not inside one."""
    old = int(gpu.rpartition("-")[2]) < OTHER_FIRMWARE
    if not isinstance(request, Vote) or (request.test, request.case) not in floats or not old:
        return answer
    return _says(answer, _noise("firmware", request.case, request.seed))


def _says(answer: Answer, fingerprint: str) -> Answer:
    ballot = answer["ballot"]
    return answer | {"ballot": ballot | {"fingerprints": ((fingerprint, ballot["launches"]),), "tiles": ()}}


def _refuted(gpu: str, request: Request, answer: Answer, of_ten: int) -> Answer | None:
    """The host's CPU miscounts: `of_ten` of ten proofs come out as refutations, whatever was computed."""
    if not isinstance(request, Prove) or derive(request.seed, request.case, gpu, "cpu") % 10 >= of_ten:
        return answer
    return answer | {"proof": answer["proof"] | {"fingerprint": None, "why": "row 0 is not the product of the inputs"}}


def _false_golden(gpu: str, request: Request, answer: Answer) -> Answer | None:
    """The host's CPU proves what nobody computed."""
    if not isinstance(request, Prove):
        return answer
    return answer | {"proof": answer["proof"] | {"fingerprint": _noise(gpu, request.case, request.seed)}}


def _library(gpu: str, request: Request, answer: Answer, cases: Cases) -> Answer | None:
    """A library that computes some cases wrong, alike on every GPU; the CPU refutes them and confirms all others."""
    if not isinstance(request, Vote | Prove) or (request.test, request.case) not in cases:
        return answer
    return _refuted(gpu, request, answer, 10) if isinstance(request, Prove) else _says(answer, _noise(request.seed))


def _hangs(gpu: str, request: Request, answer: Answer) -> Answer | None:
    """A test that never ends, on any GPU."""
    del gpu
    return None if isinstance(request, Vote) else answer


def scenarios(tests: Suite) -> tuple[Scenario, ...]:
    """Everything that must not cost a GPU its place."""
    floats = frozenset((case.test, case.name) for case in tests.all_cases if not case.exact)
    exact = frozenset((case.test, case.name) for case in tests.all_cases if case.exact)
    products = frozenset((test, case) for test, case in exact if test == "gemm.exact")

    def racing(gpu: str, request: Request, answer: Answer) -> Answer | None:
        return _unsteady(gpu, request, answer, exact)

    def buggy(gpu: str, request: Request, answer: Answer) -> Answer | None:
        return _library(gpu, request, answer, products)

    def on_floats(meddle: Callable[[str, Request, Answer, Cases], Answer | None]) -> Meddle:
        return lambda gpu, request, answer: meddle(gpu, request, answer, floats)

    def refuting(of_ten: int) -> Meddle:
        return lambda gpu, request, answer: _refuted(gpu, request, answer, of_ten)

    everyone, some = tuple(range(len(devices()))), tuple(range(OTHER_FIRMWARE))
    cpu = "two cores of the host's CPU computed different goldens"
    return (
        Scenario(id="F19", what="atomics in another order at every launch", judged=True, meddle=on_floats(_unsteady)),
        Scenario(
            id="F19.reorder", what="reductions that depend on history", judged=True, meddle=on_floats(_reordered)
        ),
        Scenario(
            id="F19.collective", what="collectives that add in another order", judged=True, meddle=_other_order
        ),
        Scenario(id="F20", what="a library bug on all GPUs", judged=True, meddle=buggy),
        Scenario(id="F20.all", what="everything wrong alike on all GPUs", judged=True, bug_on=everyone),
        Scenario(id="F20.race", what="a library's race: wrong at random on all GPUs", judged=True, meddle=racing),
        Scenario(
            id="F20.firmware", what="mixed firmware rounds otherwise", judged=True, mixed=True,
            meddle=on_floats(_other_rounding),
        ),
        Scenario(id="F20.mixed-bug", what="a bug of one of two firmwares", judged=True, mixed=True, bug_on=some),
        Scenario(id="F21", what="host CPU refutes every golden", judged=False, meddle=refuting(10)),
        Scenario(id="F21.some", what="host CPU refutes half of them", judged=False, meddle=refuting(5)),
        Scenario(id="F21.false", what="host CPU proves what is wrong", judged=False, meddle=_false_golden),
        Scenario(id="F21.seen", what="... and the CPU's test sees it", judged=False, meddle=refuting(5), host_cpu=cpu),
        Scenario(id="F22", what="nothing is launched", judged=False, bug="F22", bug_on=everyone),
        Scenario(id="F22.idle", what="next to no iterations", judged=False, launches=1),
        Scenario(id="F22.hang", what="a test hangs on every GPU", judged=False, meddle=_hangs),
    )  # fmt: skip


def judge_all(tests: Suite, healthy: Healthy, *, seed: int) -> tuple[Judged, ...]:
    """Run every scenario."""
    return tuple(_judge(one, tests, healthy, seed=seed) for one in scenarios(tests))


def _judge(one: Scenario, tests: Suite, healthy: Healthy, *, seed: int) -> Judged:
    listed = devices()
    if one.mixed:
        listed = tuple(_other(d) if d.index < OTHER_FIRMWARE else d for d in listed)
    host = Host(healthy=healthy, devices=listed, meddle=one.meddle)
    bug = {d.gpu: Inject(gpu=d.index, fault=one.bug, rate=1.0, seed=derive(seed, "bug") >> 32) for d in listed}
    planted: Mapping[str, Inject] = {d.gpu: bug[d.gpu] for d in listed if d.index in one.bug_on}
    evidence, judgement = run_host(
        tests, host, planted, seed=world_seed(seed, 0), launches=one.launches, host_cpu=one.host_cpu
    )
    index = {device.gpu: device.index for device in listed}
    return Judged(
        scenario=one,
        verdict=judgement.verdict,
        why=judgement.why,
        blamed=tuple(index[gpu.gpu] for gpu in judgement.culprits),
        gpus=tuple(gpu.verdict for gpu in judgement.gpus),
        launches=sum(cast.ballot.launches for cast in evidence.casts),
    )


def _other(device: Device) -> Device:
    return replace(device, vote_key="simulated-other-firmware")
