"""The limit of the log as a structlog processor."""

from collections.abc import Iterable, Mapping

import structlog
from prometheus_client.core import CounterMetricFamily
from prometheus_client.metrics_core import Metric

from fleetd.core.log_limit import Window, admit
from fleetd.ports import Clock


class LogLimit:
    """Withholds lines of a kind that repeats too often, and says how many; `collect` makes it a metric.

    Two threads that log at once may count a line wrong, which costs nothing.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._state: Mapping[str, Window] = {}
        self._began_at_s = clock.wall_s()
        self.withheld_total = 0

    def __call__(self, _logger: object, method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        """Let the line through. Raises structlog.DropEvent when there were too many."""
        admission = admit(self._state, f"{method} {event.get('event')}", now_s=self._clock.elapsed_s())
        self._state = admission.state
        if not admission.shown:
            self.withheld_total += 1
            raise structlog.DropEvent
        if admission.withheld_before:
            event["withheld_before"] = admission.withheld_before
        return event

    def collect(self) -> Iterable[Metric]:
        """The `Collector` of the exporter."""
        text = "Lines that the log withheld because so many of their kind were shown."
        family = CounterMetricFamily("fleetd_agent_log_lines_withheld_total", text)
        family.add_metric([], self.withheld_total, created=self._began_at_s)
        yield family
