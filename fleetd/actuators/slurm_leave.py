"""How jobs leave a node of Slurm that was drained: at their end, at a checkpoint, or now.

A job is never cancelled. It is requeued, so that it starts again elsewhere, from its last checkpoint if it writes any;
one that cannot be requeued runs on, and a person is told. One that a person suspended is held by Slurm when it is
requeued: it waits for that person as before. What was said to a job stands in its AdminComment, which its user can read
(`scontrol show job $SLURM_JOB_ID`) and cannot change; a comment of somebody else is left alone.
"""

import re

from fleetd.actuators import slurm_text
from fleetd.actuators.command import Commands
from fleetd.actuators.config import SlurmConfig
from fleetd.actuators.gone import Gone, leave_by_s, rfc3339
from fleetd.model.ids import OrderId
from fleetd.model.order import Drain, Quarantine
from fleetd.ports import ActuatorError, ActuatorObjection, Clock

JOBS_MAX = 256
"""Jobs of one node that are looked at."""
_OVER = frozenset(
    {
        *("PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT", "REVOKED"),
        *("COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE"),
        *("OUT_OF_MEMORY", "LAUNCH_FAILED", "STAGE_OUT"),
    }
)
"""States of a job that has nothing on a node any more. Not the other way round: `squeue --states=RUNNING` hides one
that its user has stopped or that is being resized, and a state that a later Slurm invents must not look like none."""
_RUNS = frozenset({"RUNNING", "CONFIGURING", "SUSPENDED", "STOPPED", "SIGNALING", "RESIZING"})
"""States in which a job is sent away. In no other: Slurm runs what has ended well once more when it is requeued."""
_LEAVING = "COMPLETING"
"""A job that was sent away or has ended, and whose processes or epilog still run: the GPUs are not free yet."""
_COMMENT = re.compile(r"^ +AdminComment=(.*)$", re.MULTILINE)
_OURS = "fleetd:"
_ODD = "its state is not understood:"


class Leaving:
    """Looks after the jobs of drained nodes. Keeps nothing in memory: Slurm and the order say where it stands."""

    def __init__(self, config: SlurmConfig, *, commands: Commands, clock: Clock) -> None:
        self._config = config
        self._commands = commands
        self._clock = clock

    async def look(self, order: Quarantine, node: str) -> Gone:
        """Do what is next for the jobs of a drained node. Raises ActuatorError, ActuatorObjection."""
        if order.drain is Drain.JOB_END:
            return Gone(done=True, why="its jobs run to their end")
        here = await self._jobs(node)
        if not here:
            return Gone(done=True, why="no job is left on it")
        jobs = [job for job, state in here if state != _LEAVING]
        if not jobs:
            return Gone(done=False, why=f"{len(here)} jobs are leaving: Slurm cleans up after them")
        by_s = leave_by_s(order, self._config.checkpoint_seconds)
        if order.drain is Drain.CHECKPOINT and self._clock.wall_s() < by_s:
            by = rfc3339(by_s)
            for job in jobs:
                await self._tell(job, f"{_OURS}{order.id}: leave {node} after your next checkpoint, by {by}")
            return Gone(done=False, why=f"{len(jobs)} jobs were told to leave at their next checkpoint, by {by}")
        # Each of them, whatever is said of another: one that Slurm does not let go keeps no other on a bad node.
        refused = [(job, said) for job, state in here if (said := await self._send_away(job, state)) is not None]
        stuck = [f"{job} ({said})" for job, said in refused if _for_good(said)]
        if stuck:
            raise ActuatorObjection(
                f"{node} is drained, but jobs run on that cannot be requeued: {', '.join(stuck[:3])}; "
                "cancel them (`scancel`) or let them end"
            )
        if refused:
            raise ActuatorError(f"scontrol requeue {refused[0][0]}: {refused[0][1]}")
        return Gone(done=False, why=f"{len(jobs)} jobs were requeued and are leaving")

    async def forget(self, node: str, order_id: OrderId) -> None:
        """Take back what jobs of a node were told: it is opened again. Raises ActuatorError."""
        for job, _ in await self._jobs(node):
            if (await self._comment(job) or "").startswith(f"{_OURS}{order_id}:"):
                await self._comment_on(job, "")

    async def _jobs(self, node: str) -> list[tuple[str, str]]:
        """The jobs that have something on a node, with their states.

        By `%i` (`7_2` of an array, `7+1` of a heterogeneous job) and not by number: one task of an array has the number
        of the array, and whoever sends that away sends the others away, too, from nodes that are well.
        """
        answer = await self._commands.run(
            *(self._config.squeue, "--noheader", f"--nodelist={node}", "--states=all", "--format=%i|%T")
        )
        if answer.code != 0:
            raise ActuatorError(f"squeue of {node}: {answer.said}")
        return [(job, state) for job, state in slurm_text.rows(answer.out, 2) if state not in _OVER][:JOBS_MAX]

    async def _tell(self, job: str, text: str) -> None:
        there = await self._comment(job)
        if there is not None and (not there or (there.startswith(_OURS) and there != text)):
            await self._comment_on(job, text)

    async def _comment(self, job: str) -> str | None:
        """What stands in a job's AdminComment; None when the job is gone."""
        answer = await self._commands.run(self._config.scontrol, "show", "job", job)
        if answer.code != 0:
            if "Invalid job id" in answer.err:
                return None
            raise ActuatorError(f"scontrol show job {job}: {answer.said}")
        comment = _COMMENT.search(answer.out)
        return comment[1].strip() if comment is not None else ""

    async def _comment_on(self, job: str, text: str) -> None:
        answer = await self._commands.run(self._config.scontrol, "update", f"JobId={job}", f"AdminComment={text}")
        if answer.code != 0 and "Invalid job id" not in answer.err:
            raise ActuatorError(f"scontrol update job {job}: {answer.said}")

    async def _send_away(self, job: str, state: str) -> str | None:
        """Requeue a job that runs; returns why that is not done. Raises ActuatorError when Slurm cannot be asked."""
        if state == _LEAVING:
            return None
        if state not in _RUNS:
            return f"{_ODD} {state}"
        # A heterogeneous job leaves as a whole: Slurm requeues no part of one but the first, which takes all along.
        answer = await self._commands.run(self._config.scontrol, "requeue", job.partition("+")[0])
        if answer.code == 0 or "Invalid job id" in answer.err or "already" in answer.err.lower():
            return None
        return answer.said


def _for_good(said: str) -> bool:
    """Whether a job cannot be requeued at all, however often that is tried."""
    return "disabled" in said or "not permitted" in said.lower() or said.startswith(_ODD)
