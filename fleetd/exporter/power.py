"""`fleetd_power_*`: limits, modes and the lease of the governor; and what each GPU's power did in the last minute.

What holds the clocks back, and for how long, is `fleetd_gpu_throttle_seconds_total` by reason: one name a quantity.
"""

from collections.abc import Callable, Iterable, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from fleetd.exporter.power_lease import budget_metrics
from fleetd.model.power import GpuPower, PowerStatus, Writer

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
        yield from _windows(status)
        yield from _swings(status.gpus)
        gauges = (
            ("lease_live", "1 while the power guard lets limits above the safe cap stand, else 0.", status.lease_live),
            (
                "envelope_enforceable",
                "1 when limits can keep the envelope, 0 when it can only be observed.",
                not status.unenforceable,
            ),
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
        yield from budget_metrics(status.budget, started_at_s=self._started_at_s)


def _gpus(status: PowerStatus) -> Iterable[Metric]:
    """By GPU. What is not known is no sample."""
    text = "1 for the mode that the governor holds the GPU in, 0 for the others."
    modes = GaugeMetricFamily("fleetd_power_mode", text, labels=["gpu", "mode"])
    text = (
        "Power limits by kind: `requested` of the driver, `target` of the governor, `default` of the part, and "
        "`enforced`, the lowest of all."
    )
    caps = GaugeMetricFamily("fleetd_power_limit_watts", text, labels=["gpu", "knob", "kind"])
    text = "Board power that the envelope allows for ever, less what is enforced: power that is paid for and not used."
    stranded = GaugeMetricFamily("fleetd_power_stranded_watts", text, labels=["gpu"])
    text = "Enforced limit less the present draw."
    headroom = GaugeMetricFamily("fleetd_power_headroom_watts", text, labels=["gpu"])
    text = "Highest clock that the power guard has locked."
    clocks = GaugeMetricFamily("fleetd_power_clock_limit_hertz", text, labels=["gpu"])
    text = "1 while the part's power-smoothing hardware has dropped out, else 0; only of a part that spoke of it."
    smoothing = GaugeMetricFamily("fleetd_power_smoothing_lost", text, labels=["gpu"])
    for gpu in status.gpus:
        for mode in MODES:
            modes.add_metric([gpu.gpu, mode], float(gpu.mode == mode))
        kinds = (("requested", gpu.set_watts), ("target", gpu.targets_watts), ("default", gpu.defaults_watts))
        for kind, limits in kinds:
            for knob, watts in limits.items():
                caps.add_metric([gpu.gpu, knob, kind], watts)
        if gpu.enforced_watts is not None:
            caps.add_metric([gpu.gpu, "", "enforced"], gpu.enforced_watts)
            stranded.add_metric([gpu.gpu], max(0.0, status.tbp_watts - gpu.enforced_watts))
            if gpu.power_watts is not None:
                headroom.add_metric([gpu.gpu], gpu.enforced_watts - gpu.power_watts)
        if gpu.clock_limit_hertz is not None:
            clocks.add_metric([gpu.gpu], gpu.clock_limit_hertz)
        if gpu.smoothing_lost is not None:
            smoothing.add_metric([gpu.gpu], float(gpu.smoothing_lost))
    yield from (family for family in (modes, caps, stranded, headroom, clocks, smoothing) if family.samples)


def _windows(status: PowerStatus) -> Iterable[Metric]:
    """The envelope's rows, and what was drawn over each of them."""
    text = "Highest average power that the envelope allows over the window, margin taken off, to the board power."
    allowed = GaugeMetricFamily("fleetd_power_window_allowed_ratio", text, labels=["window"])
    for row in status.windows:
        if row.allowed_ratio is not None:
            allowed.add_metric([row.label], row.allowed_ratio)
    text = (
        "Highest average power over any such window of the last minute, to the board power; `sight`: `certified` "
        "(something holds it, fast enough) or `audited` (only seen afterwards)."
    )
    drawn = GaugeMetricFamily("fleetd_power_window_ratio", text, labels=["gpu", "window", "sight"])
    text = (
        "1 for how well the window is kept: `certified`, `audited`, or `unobservable` (its samples are too far apart)."
    )
    sights = GaugeMetricFamily("fleetd_power_window_sight", text, labels=["gpu", "window", "sight"])
    for gpu in status.gpus:
        for label, kept in gpu.sights.items():
            sights.add_metric([gpu.gpu, label, kept], 1.0)
            watts = None if gpu.seen is None else gpu.seen.windows_watts.get(label)
            if watts is not None and status.tbp_watts > 0:
                drawn.add_metric([gpu.gpu, label, kept], watts / status.tbp_watts)
    yield from (family for family in (allowed, drawn, sights) if family.samples)


def _swings(gpus: Iterable[GpuPower]) -> Iterable[Metric]:
    """What the feed sees besides the level."""
    text = "Time between the power samples that the figures of the last minute come from."
    spacing = GaugeMetricFamily("fleetd_power_sample_spacing_seconds", text, labels=["gpu"])
    text = "Highest power sample of the last minute less the lowest."
    swing = GaugeMetricFamily("fleetd_power_swing_watts", text, labels=["gpu"])
    text = "Steepest change of power within 100 ms in the last minute; absent where samples are more than 50 ms apart."
    ramp = GaugeMetricFamily("fleetd_power_ramp_watts_per_second", text, labels=["gpu", "direction"])
    text = (
        "Amplitude of all oscillation inside the envelope's band, to the mean power, in the last minute; absent "
        "without a band, and where samples are too far apart for it."
    )
    band = GaugeMetricFamily("fleetd_power_band_ratio", text, labels=["gpu"])
    for gpu in gpus:
        if (seen := gpu.seen) is None:
            continue
        spacing.add_metric([gpu.gpu], seen.spacing_s)
        swing.add_metric([gpu.gpu], seen.swing_watts)
        ramps: Mapping[str, float | None] = {
            "up": seen.ramp_up_watts_per_second,
            "down": seen.ramp_down_watts_per_second,
        }
        for direction, slope in ramps.items():
            if slope is not None:
                ramp.add_metric([gpu.gpu, direction], slope)
        if seen.band_ratio is not None:
            band.add_metric([gpu.gpu], seen.band_ratio)
    yield from (family for family in (spacing, swing, ramp, band) if family.samples)
