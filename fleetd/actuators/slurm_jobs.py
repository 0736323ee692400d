"""The ends of jobs, from Slurm's controller: it keeps ended jobs for MinJobAge (300 s unless configured otherwise).

Asked from here rather than told by an epilog on each host: no host needs an operator's certificate, a controller that
is away for less than MinJobAge misses nothing, and no failing script drains a node. What a requeue ended is not seen:
Slurm keeps one record a job.
"""

from collections.abc import Collection

from fleetd.actuators import slurm_text
from fleetd.actuators.claims import Claims
from fleetd.actuators.command import Commands
from fleetd.actuators.config import SlurmConfig
from fleetd.model.ids import HostName
from fleetd.model.job import EndedJob
from fleetd.ports import ActuatorError

_OK = "COMPLETED"
_FAILED = frozenset({"FAILED", "NODE_FAIL", "BOOT_FAIL", "OUT_OF_MEMORY"})


class SlurmJobs:
    """The `JobEnds` of a Slurm cluster."""

    def __init__(self, config: SlurmConfig, *, commands: Commands) -> None:
        self._config = config
        self._commands = commands

    async def ended(self, hosts: Collection[HostName]) -> tuple[EndedJob, ...]:
        """The jobs that ended a short while ago, once for each of these hosts they ran on. Raises ActuatorError."""
        states = ",".join((_OK, *sorted(_FAILED)))
        answer = await self._commands.run(
            self._config.squeue, "--noheader", f"--states={states}", "--format=%A|%T|%M|%N"
        )
        if answer.code != 0:
            raise ActuatorError(f"squeue: {answer.said}")
        by_node = Claims.nodes_of(self._config.hosts, hosts)
        found = []
        for job, state, ran, nodes in slurm_text.rows(answer.out, 4):
            if not nodes:
                continue  # it never ran
            ran_seconds = slurm_text.seconds(ran)
            for node in slurm_text.expand(nodes):
                host = by_node.get(node)
                if host is not None and (state == _OK or state in _FAILED):
                    found.append(EndedJob(host=host, job=job, ok=state == _OK, ran_seconds=ran_seconds))
        return tuple(found)
