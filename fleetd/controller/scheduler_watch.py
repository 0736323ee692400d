"""Looks at the scheduler: whether it treats hosts as was ordered, and which jobs ended on them."""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from fleetd.controller.dispatcher import Dispatcher
from fleetd.controller.judge import Judge
from fleetd.core.earlier import about, knows
from fleetd.core.scheduler import differences
from fleetd.model.event import JobEnded, SchedulerDiffers
from fleetd.model.host import Lifecycle
from fleetd.model.ids import HostName
from fleetd.model.job import EndedJob
from fleetd.ports import Actuator, ActuatorError, Clock, JobEnds, StoreError

_log = structlog.get_logger(__name__)

TOGETHER = 256
"""Events that are judged side by side."""
SEEN_MAX = 100_000
"""Ended jobs that are known not to be new; the oldest are forgotten. Slurm shows them for minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerWatchConfig:
    """How often the scheduler is looked at."""

    compare_seconds: float = 300.0
    """Between two comparisons of what it does with what was ordered; the first is at the start."""
    jobs_seconds: float = 30.0
    """Between two looks for jobs that ended. Slurm forgets them after MinJobAge."""

    def __post_init__(self) -> None:
        """Refuse what cannot work. Raises ValueError."""
        for name in ("compare_seconds", "jobs_seconds"):
            if not getattr(self, name) >= 1:
                raise ValueError(f"{name}: must be at least 1, not {getattr(self, name):g}")


class SchedulerWatch:
    """Two loops. What a failure of one look hides, the next one shows: nothing is kept for later."""

    def __init__(
        self,
        *,
        judge: Judge,
        dispatcher: Dispatcher,
        actuator: Actuator,
        job_ends: JobEnds | None,
        clock: Clock,
        config: SchedulerWatchConfig,
    ) -> None:
        self._judge = judge
        self._dispatcher = dispatcher
        self._actuator = actuator
        self._job_ends = job_ends
        self._clock = clock
        self._config = config
        self._seen: OrderedDict[tuple[HostName, str, int], None] = OrderedDict()
        self._said: set[HostName] = set()  # without a node, or with another one's: as was told already
        self.failures_total = 0
        self.differences_total = 0
        self.jobs_ended_total = 0

    def adopt(self, heard: Sequence[JobEnded]) -> None:
        """Take over the ends of jobs that the journal has: they are not counted again after a restart."""
        for ended in heard:
            self._first_time(ended.host, ended.job, ended.ran_seconds)

    async def run(self) -> None:
        """Look until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._compare_for_ever())
            if self._job_ends is not None:
                group.create_task(self._hear_for_ever(self._job_ends))

    async def _compare_for_ever(self) -> None:
        while True:
            try:
                await self.compare()
            except (ActuatorError, StoreError) as error:
                self.failures_total += 1
                _log.warning("the scheduler could not be compared with the ledger", error=str(error))
            await self._clock.sleep_s(self._config.compare_seconds)

    async def compare(self) -> None:
        """Have it judged where the scheduler differs from the ledger. Raises ActuatorError, StoreError."""
        busy = self._dispatcher.busy
        before = {name: host.held for name, host in self._judge.hosts.items() if host.state is not Lifecycle.RETIRED}
        standing = await self._actuator.standing(tuple(before))
        # An order that was open, or a hold that changed, while the scheduler was asked: what it said is old.
        unchanged = [h for name, h in self._judge.hosts.items() if before.get(name) is h.held]
        at_most = self._judge.policy.budgets.quarantines.allowed(len(before))
        strange = {name for name, one in standing.items() if not one.known or one.other is not None}
        self._said &= strange
        found = differences(unchanged, standing, busy | self._dispatcher.busy, close_at_most=at_most)
        for start in range(0, len(found), TOGETHER):
            # Side by side, because one sync of the disk serves them all: after a lost ledger they are very many.
            outcomes = await asyncio.gather(*map(self._tell, found[start : start + TOGETHER]), return_exceptions=True)
            for outcome in outcomes:
                if isinstance(outcome, BaseException):
                    raise outcome

    async def _tell(self, difference: SchedulerDiffers) -> None:
        if difference.host in self._said:
            return
        host, by = self._judge.hosts[difference.host], difference.order_id
        strange = by is not None and not about(host, by)
        if by is not None and (strange or not knows(host, by)):
            _log.warning("the scheduler keeps a host closed for an order of no ledger here", host=host.name, order=by)
        else:
            self.differences_total += 1
            _log.warning("the scheduler differs from the ledger", host=host.name, closed=difference.closed)
        if strange or not difference.known:
            self._said.add(difference.host)
        try:
            await self._judge.submit(difference)
        except StoreError:
            self._said.discard(difference.host)  # the next look tells it again
            raise

    async def _hear_for_ever(self, job_ends: JobEnds) -> None:
        while True:
            try:
                await self.hear(job_ends)
            except (ActuatorError, StoreError) as error:
                self.failures_total += 1
                _log.warning("the ends of jobs could not be learnt", error=str(error))
            await self._clock.sleep_s(self._config.jobs_seconds)

    async def hear(self, job_ends: JobEnds) -> None:
        """Have the jobs judged that ended since the last look. Raises ActuatorError, StoreError."""
        # As in `compare`: a retired host claims no node any more, else it would hide what ends on its successor's.
        hosts = tuple(name for name, host in self._judge.hosts.items() if host.state is not Lifecycle.RETIRED)
        ends = await job_ends.ended(hosts)
        new = [end for end in ends if self._first_time(end.host, end.job, end.ran_seconds)]
        for start in range(0, len(new), TOGETHER):
            # Side by side, because one sync of the disk serves them all: a job of 1,000 hosts ends on each of them.
            outcomes = await asyncio.gather(*map(self._ended, new[start : start + TOGETHER]), return_exceptions=True)
            for outcome in outcomes:
                if isinstance(outcome, BaseException):
                    for end in new[start + TOGETHER :]:
                        self._seen.pop(_key(end.host, end.job, end.ran_seconds), None)
                    raise outcome

    async def _ended(self, end: EndedJob) -> None:
        try:
            await self._judge.submit(JobEnded(host=end.host, job=end.job, ok=end.ok, ran_seconds=end.ran_seconds))
        except StoreError:
            self._seen.pop(_key(end.host, end.job, end.ran_seconds), None)  # the next look tells it again
            raise
        self.jobs_ended_total += 1

    def _first_time(self, host: HostName, job: str, ran_seconds: float) -> bool:
        key = _key(host, job, ran_seconds)
        if key in self._seen:
            self._seen.move_to_end(key)
            return False
        self._seen[key] = None
        while len(self._seen) > SEEN_MAX:
            self._seen.popitem(last=False)
        return True


def _key(host: HostName, job: str, ran_seconds: float) -> tuple[HostName, str, int]:
    """One end of one job on one host: a job that is requeued ends again, after another time."""
    return host, job, round(ran_seconds)
