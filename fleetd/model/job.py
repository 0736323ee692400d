"""Who uses a GPU: the job or the pod that a scheduler gave it to; and what became of a job."""

from dataclasses import dataclass
from typing import Literal

from fleetd.model.ids import GpuId, HostName

Scheduler = Literal["slurm", "kubernetes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuJob:
    """One GPU and one user of it. None: not told, or not of this scheduler."""

    gpu: GpuId
    scheduler: Scheduler
    job_id: str | None = None
    """Slurm's job id."""
    user: str | None = None
    """Who submitted the Slurm job."""
    account: str | None = None
    """The Slurm account that pays for it."""
    namespace: str | None = None
    pod: str | None = None
    container: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedJob:
    """A job that ended on a host, as its scheduler tells it."""

    host: HostName
    job: str
    """Slurm's job id, or `NAMESPACE/POD`."""
    ok: bool
    """False: it failed. One that was cancelled or preempted, or that ran into its time limit, is not told."""
    ran_seconds: float
