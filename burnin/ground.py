"""What a run stands on: its devices, the CPU that proves, how the GPUs are set, and who else uses them. No torch here.

All of it is asked of processes that hold no GPU.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from burnin.levels import LEVELS
from burnin.options import Options, check_inject, in_use, select
from burnin.processes.children import Answer, Children
from burnin.processes.wire import CheckCores, Discover, Look, Lookout, Request, made, part
from burnin.session import round_seed
from burnin.spec import Device, Verdict
from burnin.stop import Stop
from burnin.telling.result import NotRun, State
from burnin.tests import Declaration
from burnin.verdict.settings import Settings, compared

HOST = "host"
"""The child that belongs to no GPU: it lists the devices, checks the host's CPU, and reads how GPUs are set."""
LOOKOUT = "lookout"
"""The child that looks for others who use the GPUs."""
HOST_LIMIT_S = 120.0


class CannotJudgeError(Exception):
    """There is nothing to run on, or not now; one line, exit code 3."""


class Ground:
    """See the module. Writes what it finds into the state of the run."""

    def __init__(
        self, options: Options, *, state: State, children: Children, stop: Stop, monotonic: Callable[[], float]
    ) -> None:
        """Nothing is asked yet."""
        self._options = options
        self._state = state
        self._children = children
        self._stop = stop
        self._monotonic = monotonic
        self._found: dict[str, Settings] = {}

    def _ask(self, request: Request, test: str) -> Answer | None:
        heard: list[Answer] = []
        self._children.ask(
            {HOST: [request]},
            test=test,
            quiet_s=HOST_LIMIT_S,
            limit_s=HOST_LIMIT_S,
            heard=lambda _, answer: heard.append(answer),
        )
        return heard[0] if heard else None

    def _why_host_died(self) -> str:
        return "; ".join(dict.fromkeys(death.why for death in self._children.deaths if death.gpu == HOST))

    def discover(self) -> Mapping[str, int]:
        """Fill in the devices; returns gpu → torch's ordinal."""
        options, state = self._options, self._state
        self._children.start(HOST, {"backend": options.backend})
        request = Discover(backend=options.backend, gpus=options.gpus, host=options.host)
        found: dict[str, Any] | None = self._ask(request, "discovery")
        if found is None:
            raise CannotJudgeError(f"the devices could not be listed: {self._why_host_died()}")
        state.backend, state.versions = found["backend"], found["versions"]
        if found["refused"]:
            raise CannotJudgeError(found["refused"])
        listed = tuple(made(Device, fields) for fields in found["devices"])
        devices = select(listed, options.devices)
        check_inject(options.inject, devices)
        busy = in_use(devices, found["busy"])
        if busy and not options.force:
            raise CannotJudgeError(f"{busy}; end them, choose others with --devices, or add --force")
        if busy:
            state.notes.append(f"--force: {busy}: rates are not those of GPUs that have nothing else to do")
        state.devices = devices
        ordinals: dict[str, int] = found["ordinals"]
        return ordinals

    def check_cores(self, declarations: tuple[Declaration, ...]) -> None:
        """The host's CPU first: what it proves must be worth something."""
        if not any(declaration.id == "hostcpu" for declaration in declarations):
            return
        begun_s = self._monotonic()
        answer = self._ask(CheckCores(seed=round_seed(self._options.seed, "hostcpu")), "hostcpu")
        if answer is None:
            self._state.not_run.append(NotRun(test="hostcpu", why=self._why_host_died(), required=True))
            return
        cores = part(answer, "cores")
        if len(cores["cores"]) < 2:  # noqa: PLR2004 - it takes two to compare
            named = "hostcpu" in self._options.tests
            self._state.not_run.append(NotRun(test="hostcpu", why=cores["why"], required=named))
            return
        self._state.test_elapsed_s["hostcpu"] = self._monotonic() - begun_s
        self._state.own["hostcpu"] = (Verdict.PASS if cores["equal"] else Verdict.FAIL, cores["why"])
        if not cores["equal"]:
            self._state.evidence = replace(self._state.evidence, host_cpu=cores["why"])

    def give_way(self) -> None:
        """From now on, end as soon as somebody else uses one of the GPUs, if the level says so."""
        if not LEVELS[self._options.level].gives_way:
            return
        index = {device.gpu: device.index for device in self._state.devices}

        def heard(_: str, answer: Answer) -> None:
            users = "; ".join(
                f"GPU {index[gpu]} is used by process {', '.join(map(str, pids))}"
                for gpu, pids in part(answer, "users").items()
            )
            self._stop.ask(f"gave way: {users}")

        gpus = tuple(device.gpu for device in self._state.devices)
        own = self._children.pids
        self._children.start(LOOKOUT, {"backend": self._state.backend})
        self._children.ask_aside(LOOKOUT, Lookout(backend=self._state.backend, gpus=gpus, own=own), heard)

    def look(self) -> None:
        """Let go of what listed the devices, and remember how the GPUs are set; nothing on stand-ins."""
        self._children.end(HOST)
        if self._state.backend == "cuda":
            self._found = self._settings()

    def look_again(self) -> None:
        """Let the GPUs go, and tell whether they are as they were found."""
        if not self._found:
            return
        for gpu in self._children.living:
            self._children.end(gpu)
        self._state.settings = compared(self._found, self._settings())
        index = {device.gpu: device.index for device in self._state.devices}
        for one in self._state.settings:
            self._state.notes += [f"GPU {index[one['gpu']]}: not as it was found: {why}" for why in one["changes"]]

    def _settings(self) -> dict[str, Settings]:
        """Read by a process that has asked torch for nothing, and so holds no memory of a GPU."""
        gpus = tuple(device.gpu for device in self._state.devices)
        self._children.start(HOST, {"backend": self._state.backend})
        answer = self._ask(Look(backend=self._state.backend, gpus=gpus), "settings")
        self._children.end(HOST)
        return {gpu: made(Settings, fields) for gpu, fields in part(answer, "found").items()} if answer else {}
