"""Phases of a run, with a host that says what a test wants it to say: GPUs in use, one core, counters that are gone."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import pytest

from burnin.options import Options
from burnin.processes.children import Heard
from burnin.processes.wire import CheckCores, Discover, Request
from burnin.run import CannotJudgeError, _Runner
from burnin.spec import Verdict
from burnin.stop import Stop
from burnin.telling.progress import Lines
from burnin.telling.result import State
from burnin.tests import TESTS, chosen
from burnin.verdict.evidence import Death
from burnin.verdict.health import Counters
from tests.burnin.judge_evidence import devices

ONE_CORE = {"cores": [3], "equal": True, "why": "this process may use one CPU core only"}


class Host:
    """Three GPUs, the second of which another process uses; one core."""

    living: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.deaths: list[Death] = []

    def start(self, gpu: str, setup: Mapping[str, Any]) -> None: ...

    def ask(
        self, asks: Mapping[str, Sequence[Request]], *, test: str, quiet_s: float, limit_s: float, heard: Heard
    ) -> None:
        del test, quiet_s, limit_s
        for gpu, requests in asks.items():
            for request in requests:
                heard(gpu, self.answer(request))

    def answer(self, request: Request) -> dict[str, Any]:
        listed = [asdict(device) for device in devices(3)]
        match request:
            case Discover():
                busy = {"gpu1": [17, 90]}
                return {
                    "backend": "cuda",
                    "versions": {},
                    "refused": "",
                    "devices": listed,
                    "busy": busy,
                    "ordinals": {device["gpu"]: device["index"] for device in listed},
                }
            case CheckCores():
                return {"cores": ONE_CORE}
        raise AssertionError(request)


class _Silent:
    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None: ...


def runner(**more: Any) -> tuple[_Runner, State]:
    options = replace(Options(backend="cuda", level="smoke", seed=1, host="h"), **more)
    state = State(backend="cuda", devices=devices(3))
    made = _Runner(
        options,
        chosen(options.level, options.tests),
        table=TESTS,
        state=state,
        children=Host(),  # type: ignore[arg-type]  # what is asked here
        stop=Stop(),
        progress=Lines(_Silent(), monotonic=lambda: 0.0),  # type: ignore[arg-type]  # it only needs these two
        monotonic=lambda: 0.0,
        announce=lambda: None,
    )
    return made, state


def test_gpus_in_use_are_not_judged_and_the_processes_are_named() -> None:
    with pytest.raises(CannotJudgeError, match=r"^in use: GPU 1 by process 17, 90; end them, .* or add --force$"):
        runner()[0]._discover()


def test_a_run_that_was_forced_says_whose_gpus_it_shared() -> None:
    forced, state = runner(force=True)
    assert forced._discover() == {"gpu0": 0, "gpu1": 1, "gpu2": 2}
    assert [note for note in state.notes if note.startswith("--force: in use: GPU 1 by process 17, 90")] == state.notes
    assert len(state.notes) == 1


def test_a_forced_run_on_free_gpus_has_nothing_to_say() -> None:
    forced, state = runner(force=True, devices=("0", "2"))
    forced._discover()
    assert ([device.index for device in state.devices], state.notes) == ([0, 2], [])


@pytest.mark.parametrize(("tests", "required"), [((), False), (("hostcpu",), True), (("int", "hostcpu"), True)])
def test_one_core_cannot_be_doubted_and_whoever_asks_for_it_gets_no_verdict(
    tests: tuple[str, ...], required: bool
) -> None:
    alone, state = runner(tests=tests)
    alone._check_cores()
    assert [(one.test, one.why, one.required) for one in state.not_run] == [("hostcpu", ONE_CORE["why"], required)]


COUNTED = Counters(source="NVML", uncorrectable_total=0)


def test_counters_that_were_not_read_again_are_no_good_news() -> None:
    for gone, verdict in ((set[str](), Verdict.PASS), ({"gpu2"}, Verdict.NOT_JUDGED)):
        made, state = runner()
        made._judge_health({device.gpu: COUNTED for device in state.devices if device.gpu not in gone})
        told, why = state.own["health"]
        assert told is verdict
        assert ("GPU 2" in why) == bool(gone)


@pytest.mark.parametrize(("tests", "required"), [((), False), (("health",), True)])
def test_a_cpu_without_counters_has_no_health_to_ask_for(tests: tuple[str, ...], required: bool) -> None:
    made, state = runner(tests=tests)
    state.backend = "cpu"
    made._judge_health({device.gpu: Counters(source="") for device in state.devices})
    assert [(one.test, one.required) for one in state.not_run] == [("health", required)]
