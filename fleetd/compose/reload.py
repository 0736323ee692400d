"""SIGHUP: the agent's configuration is read again. What can change while it runs does; a bad file changes nothing."""

from collections.abc import Callable, Iterable
from dataclasses import fields
from pathlib import Path

import structlog
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from fleetd.config.files import AgentConfig, load_agent
from fleetd.config.strict import ConfigError
from fleetd.ports import Clock

_log = structlog.get_logger(__name__)

LIVE = frozenset({"detect", "place", "sampler"})
"""Parts that take effect at once. The others are wired at the start: to change them under a running burn-in or a full
spool would put at risk what the agent is for, and a restart takes a second."""


class Reloader:
    """Keeps the last good configuration, and the metrics that say whether it is the one on disk."""

    def __init__(self, path: Path, config: AgentConfig, *, apply: Callable[[AgentConfig], None], clock: Clock) -> None:
        """`config` was read from `path`; `apply` makes the `LIVE` parts of another one take effect."""
        self._path = path
        self._started_with = config
        self._apply = apply
        self._clock = clock
        self._ok = True
        self._ok_at_s = clock.wall_s()
        self._restart_for: tuple[str, ...] = ()

    def reload(self) -> None:
        """Read the file; never raises for what stands in it."""
        try:
            config = load_agent(self._path)
        except ConfigError as error:
            self._ok = False
            _log.error("reload_refused", why=str(error), kept="the last good configuration")
            return
        self._ok, self._ok_at_s = True, self._clock.wall_s()
        self._restart_for = tuple(
            part.name
            for part in fields(config)
            if part.name not in LIVE and getattr(config, part.name) != getattr(self._started_with, part.name)
        )
        self._apply(config)
        _log.info("reloaded", path=str(self._path))
        if self._restart_for:
            _log.warning("restart_needed", parts=list(self._restart_for), why="these parts change with a restart only")

    def collect(self) -> Iterable[Metric]:
        """The `Collector` of the exporter."""
        gauges = (
            ("last_reload_successful", "1 unless the file on disk was refused and an older one is in force.", self._ok),
            ("last_reload_success_timestamp_seconds", "When the configuration in force was read.", self._ok_at_s),
            (
                "restart_needed",
                "1 while the file has changes that need a restart.",
                bool(self._restart_for),
            ),
        )
        for name, text, value in gauges:
            yield GaugeMetricFamily(f"fleetd_agent_config_{name}", text, value=float(value))
