"""Wiring of an agent's watch over its own certificate, and what it shows of it."""

import random
from collections.abc import Callable, Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from fleetd.agent.renewal import Renewal
from fleetd.config.files import AgentConfig
from fleetd.model.ids import HostName
from fleetd.ports import Clock
from fleetd.uplink.renewer import OwnCertificate


def build_renewal(
    config: AgentConfig, *, host: HostName, clock: Clock, rng: random.Random, renewed: Callable[[], None]
) -> Renewal | None:
    """The watch over the agent's certificate; None: it has none, without TLS. Raises UplinkError.

    `renewed`: has the agent connect anew.
    """
    files = config.uplink.tls
    if files is None:
        return None
    own = OwnCertificate(config.uplink, files, host=host)
    return Renewal(own, renew=config.uplink.renew, clock=clock, rng=rng, renewed=renewed)


class CertificateCollector:
    """When the agent's certificate ends, and how its renewals went."""

    def __init__(self, renewal: Renewal, *, started_at_s: float) -> None:
        """`started_at_s`: wall time since which the totals count."""
        self._renewal = renewal
        self._started_at_s = started_at_s

    def collect(self) -> Iterable[Metric]:
        """The end only while the file can be read."""
        if (ends_at_s := self._renewal.ends_at_s) is not None:
            text = "Wall time until which the agent's certificate counts."
            yield GaugeMetricFamily("fleetd_agent_certificate_end_timestamp_seconds", text, value=ends_at_s)
        for name, text, value in (
            ("renewals", "Certificates that the agent replaced by new ones.", self._renewal.renewals_total),
            ("failures", "Renewals and looks at the certificate that failed.", self._renewal.failures_total),
        ):
            yield CounterMetricFamily(
                f"fleetd_agent_certificate_{name}_total", text, value=value, created=self._started_at_s
            )
