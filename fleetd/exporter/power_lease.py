"""`fleetd_power_budget_*`: the host's lease of the fleet's power budgets."""

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from fleetd.model.power_lease import LeaseStatus


def budget_metrics(status: LeaseStatus | None, *, started_at_s: float | None) -> Iterable[Metric]:
    """None: this host takes part in no budget, and shows nothing of it."""
    if status is None:
        return
    gauges = (
        ("lease_live", "1 while the controller's lease of the power budget holds, else 0.", float(status.left_s > 0)),
        ("lease_left_seconds", "Until that lease lapses.", status.left_s),
        ("cap_watts", "Cap of the whole host: that of the lease, else the safe one.", status.watts),
        ("safe_watts", "Cap of the whole host without a lease.", status.safe_watts),
        ("demand_watts", "What the host asks for.", status.demand_watts),
        ("in_force_watts", "What the limits that were read back allow the whole host.", status.in_force_watts),
    )
    for name, text, value in gauges:
        if value is not None:
            yield GaugeMetricFamily(f"fleetd_power_budget_{name}", text, value=value)
    counters = (
        ("asks_total", "Questions for a lease of the power budget.", status.asked_total),
        ("answers_total", "Answers to them.", status.answered_total),
        ("lapses_total", "Leases of the power budget that lapsed.", status.lapses_total),
    )
    for name, text, total in counters:
        yield CounterMetricFamily(f"fleetd_power_budget_{name}", text, value=total, created=started_at_s)
