"""Phases of a run, with a host that says what a test wants it to say: GPUs in use, one core, counters that are gone."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import pytest

from burnin.checkup import checked, counted_from
from burnin.ground import CannotJudgeError, Ground
from burnin.options import Options
from burnin.processes.children import Heard
from burnin.processes.wire import CheckCores, Discover, Look, Lookout, Request
from burnin.spec import Verdict
from burnin.stop import Stop
from burnin.telling.result import State
from burnin.tests import chosen
from burnin.verdict.evidence import Death
from burnin.verdict.health import Counters
from burnin.verdict.settings import Settings
from tests.burnin.judge_evidence import devices

ONE_CORE = {"cores": [3], "equal": True, "why": "this process may use one CPU core only"}


class Host:
    """Three GPUs, the second of which another process uses; one core."""

    living: tuple[str, ...] = ()
    pids: tuple[int, ...] = (11, 12)

    def __init__(self) -> None:
        self.deaths: list[Death] = []
        self.ended: list[str] = []
        self.watts = 700.0

    def start(self, gpu: str, setup: Mapping[str, Any]) -> None: ...

    def end(self, gpu: str) -> None:
        self.ended.append(gpu)

    def ask_aside(self, gpu: str, request: Request, heard: Heard) -> None:
        assert isinstance(request, Lookout)
        assert (request.own, request.gpus) == ((11, 12), ("gpu0", "gpu1", "gpu2"))
        heard(gpu, {"users": {"gpu2": [77]}})

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
            case Look(gpus=gpus):
                return {"found": {gpu: asdict(Settings(power_limit_watts=self.watts)) for gpu in gpus}}
        raise AssertionError(request)


def ground(host: Host | None = None, stop: Stop | None = None, **more: Any) -> tuple[Ground, State]:
    options = replace(Options(backend="cuda", level="smoke", seed=1, host="h"), **more)
    state = State(backend="cuda", devices=devices(3))
    children: Any = host or Host()  # what is asked here
    stop = stop or Stop()
    return Ground(options, state=state, children=children, stop=stop, monotonic=lambda: 0.0), state


def test_gpus_in_use_are_not_judged_and_the_processes_are_named() -> None:
    with pytest.raises(CannotJudgeError, match=r"^in use: GPU 1 by process 17, 90; end them, .* or add --force$"):
        ground()[0].discover()


def test_a_run_that_was_forced_says_whose_gpus_it_shared() -> None:
    forced, state = ground(force=True)
    assert forced.discover() == {"gpu0": 0, "gpu1": 1, "gpu2": 2}
    assert [note for note in state.notes if note.startswith("--force: in use: GPU 1 by process 17, 90")] == state.notes
    assert len(state.notes) == 1


def test_a_forced_run_on_free_gpus_has_nothing_to_say() -> None:
    forced, state = ground(force=True, devices=("0", "2"))
    forced.discover()
    assert ([device.index for device in state.devices], state.notes) == ([0, 2], [])


@pytest.mark.parametrize(("tests", "required"), [((), False), (("hostcpu",), True), (("int", "hostcpu"), True)])
def test_one_core_cannot_be_doubted_and_whoever_asks_for_it_gets_no_verdict(
    tests: tuple[str, ...], required: bool
) -> None:
    alone, state = ground(tests=tests)
    alone.check_cores(chosen("smoke", tests))
    assert [(one.test, one.why, one.required) for one in state.not_run] == [("hostcpu", ONE_CORE["why"], required)]


COUNTED = Counters(source="NVML", uncorrectable_total=0)


def test_counters_that_were_not_read_again_are_no_good_news() -> None:
    for gone, verdict in ((set[str](), Verdict.PASS), ({"gpu2"}, Verdict.NOT_JUDGED)):
        state = State(backend="cuda", devices=devices(3))
        after = {device.gpu: COUNTED for device in state.devices if device.gpu not in gone}
        checked(state, {}, after, required=True, named=False)
        told, why = state.own["health"]
        assert told is verdict
        assert ("GPU 2" in why) == bool(gone)


@pytest.mark.parametrize("named", [False, True])
def test_a_cpu_without_counters_has_no_health_to_ask_for(named: bool) -> None:
    state = State(backend="cpu", devices=devices(3))
    after = {device.gpu: Counters(source="") for device in state.devices}
    checked(state, {}, after, required=False, named=named)
    assert [(one.test, one.required) for one in state.not_run] == [("health", named)]


def test_a_run_that_goes_on_compares_with_its_beginning_unless_the_driver_was_loaded_anew() -> None:
    saved = {"gpu0": replace(COUNTED, uncorrectable_total=2), "gpu1": replace(COUNTED, uncorrectable_total=7)}
    now = {gpu: replace(COUNTED, uncorrectable_total=3) for gpu in ("gpu0", "gpu1", "gpu2")}
    assert counted_from(saved, now) == {"gpu0": saved["gpu0"], "gpu1": now["gpu1"], "gpu2": now["gpu2"]}


def test_gpus_are_let_go_of_and_then_read_again() -> None:
    for watts, changed in ((700.0, []), (600.0, ["power limit was 700 and is 600"])):
        host = Host()
        made, state = ground(host)
        made.look()
        host.watts, host.living = watts, ("gpu0", "gpu1", "gpu2")
        made.look_again()
        assert [one for one in host.ended if one != "host"] == ["gpu0", "gpu1", "gpu2"]
        assert host.ended[-1] == "host"
        assert [one["changes"] for one in state.settings] == [changed] * 3
        assert state.notes == [f"GPU {i}: not as it was found: {why}" for i in range(3) for why in changed]


def test_what_stands_in_for_a_gpu_has_no_settings() -> None:
    made, state = ground()
    state.backend = "sim"
    made.look()
    made.look_again()
    assert state.settings == []


@pytest.mark.parametrize(("level", "why"), [("idle", "gave way: GPU 2 is used by process 77"), ("smoke", "")])
def test_only_an_idle_run_gives_way(level: str, why: str) -> None:
    stop = Stop()
    ground(stop=stop, level=level)[0].give_way()
    assert (stop.asked, stop.why) == (bool(why), why)
