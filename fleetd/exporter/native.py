"""fleetd's own names: the catalogue of `fleetd.model.telemetry`, who uses the GPUs, what was found, and the agent.

Creation times (OpenMetrics `_created`) are told of the counters that began with this process. Those of a driver began
when it was loaded, which no vendor tells: a time that is made up would make rates out of thin air.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric

from fleetd.model.host import Gpu
from fleetd.model.job import GpuJob
from fleetd.model.status import AgentStatus, FaultCount
from fleetd.model.telemetry import FAMILIES, METRICS, GpuSample, Labelled


class BuildCollector:
    """`fleetd_build_info`."""

    def __init__(self, version: str) -> None:
        self._family = InfoMetricFamily("fleetd_build", "Version of fleetd.", value={"version": version})

    def collect(self) -> Iterable[Metric]:
        """The version as a label."""
        yield self._family


class AgentCollector:
    """The GPUs of one host and the agent itself."""

    def __init__(self, status: Callable[[], AgentStatus], *, started_at_s: float | None = None) -> None:
        """`started_at_s`: wall time since which the agent's totals count; None: not told."""
        self._status = status
        self._started_at_s = started_at_s
        self._samples: tuple[GpuSample, ...] | None = None
        self._readings: list[Metric] = []

    def collect(self) -> Iterable[Metric]:
        """One consistent snapshot. The families of the readings stay the same objects until the next reading."""
        status = self._status()
        if status.samples is not self._samples:
            self._samples, self._readings = status.samples, list(_gpu_families(status.samples))
        yield from self._readings
        yield _gpu_info(status.inventory)
        if status.samples_age_s is not None and status.samples:
            yield _ages(status.samples, status.samples_age_s)
        yield from _agent_families(status, self._started_at_s)


class FaultCollector:
    """What was found on this host, by code: counters and times, never a gauge that keeps the last code."""

    def __init__(self, faults: Callable[[], Sequence[FaultCount]], *, started_at_s: float | None = None) -> None:
        self._faults = faults
        self._started_at_s = started_at_s

    def collect(self) -> Iterable[Metric]:
        """Nothing until something was found."""
        names = ["code", "severity", "gpu"]
        text = "Findings by code of the fault catalogue and severity; without `gpu`: of the host."
        total = CounterMetricFamily("fleetd_faults_total", text, labels=names)
        text = "Wall time of the last such finding."
        last = GaugeMetricFamily("fleetd_fault_last_seen_timestamp_seconds", text, labels=names)
        for fault in self._faults():
            labels = [fault.code, fault.severity.name.lower(), fault.gpu or ""]
            total.add_metric(labels, fault.total, created=self._started_at_s)
            last.add_metric(labels, fault.last_at_s)
        if last.samples:
            yield total
            yield last


class JobCollector:
    """`fleetd_gpu_job_info`: who uses a GPU, to be joined by `gpu`, so that no other series changes with the jobs."""

    def __init__(
        self,
        jobs: Callable[[], Sequence[GpuJob]],
        *,
        errors: Callable[[], Mapping[str, int]] = dict,
        started_at_s: float | None = None,
    ) -> None:
        """`errors`: looks that failed, by where it was looked; a closed set."""
        self._jobs = jobs
        self._errors = errors
        self._started_at_s = started_at_s

    def collect(self) -> Iterable[Metric]:
        """A sample for each user of a GPU; none for a GPU of which none is known."""
        labels = ["gpu", "scheduler", "job_id", "user", "account", "namespace", "pod", "container"]
        text = "The job or pod that uses the GPU; several when they share it."
        family = GaugeMetricFamily("fleetd_gpu_job_info", text, labels=labels)
        for job in self._jobs():
            family.add_metric([getattr(job, label) or "" for label in labels], 1.0)
        if family.samples:
            yield family
        text = "Looks for jobs that failed, by where it was looked."
        failed = CounterMetricFamily("fleetd_agent_job_errors_total", text, labels=["source"])
        for source, count in sorted(self._errors().items()):
            failed.add_metric([source], count, created=self._started_at_s)
        if failed.samples:
            yield failed


def _gpu_families(samples: Sequence[GpuSample]) -> Iterable[Metric]:
    """The catalogue, by GPU. A reading that is not there is no sample, and never 0."""
    for metric in METRICS:
        kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
        family = kind(f"fleetd_gpu_{metric.name}", metric.help, labels=["gpu"])
        for sample in samples:
            value: float | None = getattr(sample, metric.name)
            if value is not None:
                family.add_metric([sample.gpu], value)
        if family.samples:
            yield family
    for entry in FAMILIES:
        kind = CounterMetricFamily if entry.kind == "counter" else GaugeMetricFamily
        family = kind(f"fleetd_gpu_{entry.name}", entry.help, labels=["gpu", str(entry.label)])
        for sample in samples:
            readings: Labelled = getattr(sample, entry.name)
            for label, number in readings:
                family.add_metric([sample.gpu, label], number)
        if family.samples:
            yield family


def _ages(samples: Sequence[GpuSample], newest_s: float) -> Metric:
    """A GPU whose driver has become slow is asked more rarely than the others, and its reading is older."""
    text = "Seconds since the GPU was read; a reading that has become stale is no longer shown."
    family = GaugeMetricFamily("fleetd_gpu_sample_age_seconds", text, labels=["gpu"])
    newest_at_s = max(sample.at_s for sample in samples)
    for sample in samples:
        family.add_metric([sample.gpu], newest_s + newest_at_s - sample.at_s)
    return family


def _gpu_info(inventory: Sequence[Gpu]) -> Metric:
    """What may change under a GPU's name, to be joined by `gpu`."""
    labels = ["gpu", "index", "sku", "vendor", "pci_address", "vbios", "firmware", "driver"]
    family = GaugeMetricFamily("fleetd_gpu_info", "GPUs of this host; index and address may change.", labels=labels)
    for gpu in inventory:
        versions = (gpu.pci_address or "", gpu.vbios or "", gpu.firmware or "", gpu.driver_version or "")
        family.add_metric([gpu.gpu, str(gpu.index), gpu.sku, gpu.vendor, *versions], 1.0)
    return family


def _agent_families(status: AgentStatus, created: float | None) -> Iterable[Metric]:
    gauges: tuple[tuple[str, str, float], ...] = (
        ("silent_gpus", "GPUs that have given no sample for so long that it was reported.", len(status.silent_gpus)),
        ("uplink_connected", "1 while the controller answers, else 0.", status.uplink_connected),
        ("spool_pending", "Findings that the controller has not acknowledged.", status.spool_pending),
    )
    for name, text, value in gauges:
        yield GaugeMetricFamily(f"fleetd_agent_{name}", text, value=value)
    if status.kernel_log_age_s is not None:
        text = "Seconds since the kernel log last answered, also with nothing new."
        yield GaugeMetricFamily("fleetd_agent_kernel_log_age_seconds", text, value=status.kernel_log_age_s)
    if (lost := status.kernel_log_lost_total) is not None:
        text = "Kernel log records that were lost before they were read."
        yield CounterMetricFamily("fleetd_agent_kernel_log_lost_total", text, value=lost, created=created)
    counters = (
        ("spool_dropped_total", "Findings that the bounded spool had to drop.", status.spool_dropped_total),
        ("findings_total", "Findings made on this host.", status.findings_total),
        ("sample_overruns_total", "Samples skipped because the one before took too long.", status.overruns_total),
    )
    for name, text, value in counters:
        yield CounterMetricFamily(f"fleetd_agent_{name}", text, value=value, created=created)
    errors = CounterMetricFamily("fleetd_agent_errors_total", "Operating failures by kind.", labels=["kind"])
    for kind, value in sorted(status.errors_total.items()):
        errors.add_metric([kind], value, created=created)
    yield errors
    runs = CounterMetricFamily("fleetd_agent_burnin_runs_total", "Burn-ins that ended, by verdict.", labels=["verdict"])
    for verdict, value in sorted(status.burnin_runs_total.items()):
        runs.add_metric([verdict], value, created=created)
    yield runs
