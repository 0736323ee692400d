"""Status: what the agent knows about itself, as one consistent snapshot for whoever shows it (exporter, checks)."""

from collections.abc import Mapping
from dataclasses import dataclass

from fleetd.model.finding import Severity
from fleetd.model.host import Gpu
from fleetd.model.ids import GpuId
from fleetd.model.telemetry import GpuSample


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentStatus:
    """One snapshot of the agent. Totals count since the process started."""

    inventory: tuple[Gpu, ...]
    samples: tuple[GpuSample, ...]
    """The latest reading of each GPU that answered."""
    samples_age_s: float | None
    """Monotonic seconds since these readings; None: there has been none."""
    silent_gpus: tuple[GpuId, ...]
    """GPUs that have given no sample for so long that a finding was made."""
    overruns_total: int
    """Samples that were skipped because the one before took longer than the interval."""
    uplink_connected: bool
    spool_pending: int
    """Findings that the controller has not acknowledged."""
    spool_dropped_total: int
    """Findings that the bounded spool had to drop."""
    findings_total: int
    kernel_log_age_s: float | None
    """Monotonic seconds since the kernel log last answered, also with nothing new; None: not followed or never read."""
    kernel_log_lost_total: int | None
    """Records that the kernel dropped before they were read; None: the log is not followed."""
    errors_total: Mapping[str, int]
    """Operating failures by kind; the kinds are a closed set, each there from the start."""
    burnin_runs_total: Mapping[str, int]
    """Burn-ins that ended, by verdict; each verdict there from the start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultCount:
    """How often one fault was told of one GPU since the process started."""

    code: str
    severity: Severity
    """As the findings say it: a code may be told by more than one, and is then counted under each."""
    gpu: GpuId | None
    """None: told of the host."""
    total: int
    last_at_s: float
    """Wall time of the last, seconds since the epoch."""
