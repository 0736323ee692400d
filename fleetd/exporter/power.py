"""`fleetd_power_*`: limits, modes and the lease of the governor."""

from collections.abc import Callable, Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from fleetd.model.power import PowerStatus, Writer

MODES = ("observe", "safe", "boost")


class PowerCollector:
    """What the governor knows, as metrics."""

    def __init__(self, status: Callable[[], PowerStatus], *, started_at_s: float | None = None) -> None:
        """`started_at_s`: wall time since which the totals count; None: not told."""
        self._status = status
        self._started_at_s = started_at_s

    def collect(self) -> Iterable[Metric]:
        """One consistent snapshot."""
        status = self._status()
        yield from _gpus(status)
        gauges = (
            ("lease_live", "1 while the power guard lets limits above the safe cap stand, else 0.", status.lease_live),
            ("guard_program_replaced", "1 while the guard that runs is not the one on disk.", status.program_replaced),
        )
        for name, text, value in gauges:
            yield GaugeMetricFamily(f"fleetd_power_{name}", text, value=float(value))
        counters = (
            ("lease_renewals_total", "Renewals that the power guard confirmed.", status.renewed_total),
            ("limit_writes_total", "Power limits that were written.", status.writes_total),
            ("limit_write_errors_total", "Power limits that were refused or not taken.", status.write_errors_total),
        )
        for name, text, total in counters:
            yield CounterMetricFamily(f"fleetd_power_{name}", text, value=total, created=self._started_at_s)
        text = "Limits that were moved by somebody else than the governor, by whom."
        drift = CounterMetricFamily("fleetd_power_limit_drift_total", text, labels=["writer"])
        for writer in Writer:
            drift.add_metric([writer.value], status.drift_total.get(writer.value, 0), created=self._started_at_s)
        yield drift


def _gpus(status: PowerStatus) -> Iterable[Metric]:
    """By GPU. What is not known is no sample."""
    text = "1 for the mode that the governor holds the GPU in, 0 for the others."
    modes = GaugeMetricFamily("fleetd_power_mode", text, labels=["gpu", "mode"])
    text = "Power limits by kind: `set` is read, `target` is what the governor wants, `enforced` the lowest of all."
    caps = GaugeMetricFamily("fleetd_power_limit_watts", text, labels=["gpu", "knob", "kind"])
    text = "Board power that the envelope allows for ever, less what is enforced: power that is paid for and not used."
    stranded = GaugeMetricFamily("fleetd_power_stranded_watts", text, labels=["gpu"])
    text = "Enforced limit less the present draw."
    headroom = GaugeMetricFamily("fleetd_power_headroom_watts", text, labels=["gpu"])
    for gpu in status.gpus:
        for mode in MODES:
            modes.add_metric([gpu.gpu, mode], float(gpu.mode == mode))
        for kind, limits in (("set", gpu.set_watts), ("target", gpu.targets_watts)):
            for knob, watts in limits.items():
                caps.add_metric([gpu.gpu, knob, kind], watts)
        if gpu.enforced_watts is not None:
            caps.add_metric([gpu.gpu, "", "enforced"], gpu.enforced_watts)
            stranded.add_metric([gpu.gpu], max(0.0, status.tbp_watts - gpu.enforced_watts))
            if gpu.power_watts is not None:
                headroom.add_metric([gpu.gpu], gpu.enforced_watts - gpu.power_watts)
    yield from (family for family in (modes, caps, stranded, headroom) if family.samples)
