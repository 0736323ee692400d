"""`fleetd_calls_turned_away_total`: who was not served, and why."""

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily
from prometheus_client.metrics_core import Metric

from fleetd.uplink.identity_service import EnrolmentServer
from fleetd.uplink.server import Server


class TurnedAwayCollector:
    """Of the controller's ports; they are opened after its metrics."""

    def __init__(self, *, started_at_s: float) -> None:
        """`started_at_s`: wall time since which they are counted."""
        self._started_at_s = started_at_s
        self.server: Server | None = None
        self.strangers: EnrolmentServer | None = None

    def collect(self) -> Iterable[Metric]:
        """Nothing before the ports are open."""
        counts = {} if self.server is None else dict(self.server.turned_away)
        if self.strangers is not None:
            counts["enrolment"] = self.strangers.turned_away
        text = "Calls that were not served: beyond a peer's limits, attempts to enrol, agents that do not read."
        family = CounterMetricFamily("fleetd_calls_turned_away_total", text, labels=["reason"])
        for reason, count in sorted(counts.items()):
            family.add_metric([reason], count, created=self._started_at_s)
        if counts:
            yield family
