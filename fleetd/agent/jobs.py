"""Job mapping: who uses which GPU, looked up now and then, so that readings can be joined with jobs.

Nothing here can hurt the agent: files are read off the event loop and the kubelet is asked, both with a deadline;
failures are counted, the kubelet's followed by a growing wait, and what is no longer known is no longer told.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

import structlog

from fleetd.agent.jobs_config import JobsConfig
from fleetd.agent.jobs_kubelet import KubeletError, pod_jobs
from fleetd.agent.jobs_slurm import slurm_jobs
from fleetd.model.host import Gpu
from fleetd.model.ids import GpuId
from fleetd.model.job import GpuJob
from fleetd.ports import Clock

_log = structlog.get_logger(__name__)

KUBELET_SOCKET = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
_PROC = Path("/proc")
_RETRY_MAX_S = 300.0
Blocking = Callable[[Callable[[], tuple[GpuJob, ...]]], Coroutine[Any, Any, tuple[GpuJob, ...]]]
"""Runs a function on a thread that nobody waits for at the end of the process (`fleetd.system.run_on_daemon`)."""


class JobWatch:
    """Looks until cancelled. `jobs` and `errors_total` may be read from another thread."""

    def __init__(
        self,
        *,
        config: JobsConfig,
        clock: Clock,
        run_blocking: Blocking,
        inventory: Callable[[], Sequence[Gpu]],
        processes: Callable[[], Mapping[GpuId, Sequence[int]]],
        user_name: Callable[[int], str | None],
        proc: Path = _PROC,
    ) -> None:
        """Look at nothing yet.

        Args:
            config: where to look.
            clock: for the intervals.
            run_blocking: reads files on a thread.
            inventory: the GPUs of the host.
            processes: ids of the processes that hold each GPU, as the driver tells them.
            user_name: the name of a user id; may block, and is called on the thread.
            proc: where the kernel shows processes.
        """
        self._config = config
        self._clock = clock
        self._run_blocking = run_blocking
        self._inventory = inventory
        self._processes = processes
        self._user_name = user_name
        self._proc = proc
        self._slurm: tuple[GpuJob, ...] = ()
        self._pods: tuple[GpuJob, ...] = ()
        self._failures = 0
        self._kubelet_due_s = 0.0
        self._scan: asyncio.Task[tuple[GpuJob, ...]] | None = None
        self.errors_total = {"kubelet": 0, "slurm": 0}

    def jobs(self) -> tuple[GpuJob, ...]:
        """Who uses which GPU now, as far as it is known."""
        return self._slurm + self._pods

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await self.look()
            await self._clock.sleep_s(self._config.interval_seconds)

    async def look(self) -> None:
        """One look at everything."""
        if self._config.slurm != "off":
            await self._look_at_processes()
        await self._look_at_pods()

    async def _look_at_processes(self) -> None:
        """The kernel keeps a reader of a process waiting that hangs in a driver: then the same look is waited for."""
        if self._scan is None:
            pids = {gpu: tuple(held_by) for gpu, held_by in self._processes().items() if held_by}
            if not pids:
                self._slurm = ()
                return
            self._scan = asyncio.create_task(self._run_blocking(lambda: slurm_jobs(self._proc, pids, self._user_name)))
        done, _ = await asyncio.wait({self._scan}, timeout=self._config.deadline_seconds)
        if done:
            self._slurm, self._scan = self._scan.result(), None
        else:
            self._slurm = ()
            self.errors_total["slurm"] += 1

    async def _look_at_pods(self) -> None:
        if self._config.kubelet == "off" or self._clock.elapsed_s() < self._kubelet_due_s:
            return
        socket = KUBELET_SOCKET if self._config.kubelet == "auto" else Path(self._config.kubelet)
        if self._config.kubelet == "auto" and not _is_there(socket):
            self._pods = ()
            return
        config = self._config
        try:
            self._pods = await pod_jobs(socket, self._inventory(), deadline_s=config.deadline_seconds)
        except KubeletError as error:
            # A pod may have ended since: rather nothing than the owner of yesterday.
            self._pods = ()
            self.errors_total["kubelet"] += 1
            wait_s = min(config.interval_seconds * 2.0 ** min(self._failures, 30), _RETRY_MAX_S)
            self._kubelet_due_s = self._clock.elapsed_s() + wait_s
            if not self._failures:  # a line for each try would bury everything else
                _log.warning("kubelet_does_not_answer", why=str(error))
            self._failures += 1
            return
        if self._failures:
            _log.info("kubelet_answers_again", after_failures=self._failures)
        self._failures = 0


def _is_there(path: Path) -> bool:
    try:
        path.stat()
    except OSError:  # or in a folder that is not for us
        return False
    return True
