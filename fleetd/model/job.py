"""Who uses a GPU: the job or the pod that a scheduler gave it to."""

from dataclasses import dataclass
from typing import Literal

from fleetd.model.ids import GpuId

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
