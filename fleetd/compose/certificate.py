"""Wiring of an agent's watch over its own certificate, and what agents and controllers show of theirs."""

import random
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from fleetd.agent.renewal import Renewal
from fleetd.config.files import AgentConfig, ControllerConfig
from fleetd.model.ids import HostName
from fleetd.ports import Clock, UplinkError
from fleetd.uplink.renewer import OwnCertificate
from fleetd.uplink.validity import validity_in


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
        """Begin and end only while the file can be read."""
        for name, when, at_s in (
            ("begin", "from which on", self._renewal.begins_at_s),
            ("end", "until which", self._renewal.ends_at_s),
        ):
            if at_s is not None:
                text = f"Wall time {when} the agent's certificate counts."
                yield GaugeMetricFamily(f"fleetd_agent_certificate_{name}_timestamp_seconds", text, value=at_s)
        for name, text, value in (
            ("renewals", "Certificates that the agent replaced by new ones.", self._renewal.renewals_total),
            ("failures", "Renewals and looks at the certificate that failed.", self._renewal.failures_total),
        ):
            yield CounterMetricFamily(
                f"fleetd_agent_certificate_{name}_total", text, value=value, created=self._started_at_s
            )


class ServedCertificates:
    """The certificates that a controller shows: they are read at each scrape, as they are for each connection."""

    def __init__(self, files: Mapping[str, str]) -> None:
        """`files`: path of a certificate by what it serves (`agents`, `web`)."""
        self._files = dict(files)

    def collect(self) -> Iterable[Metric]:
        """Nothing of a file that cannot be read: who connects is told why, and so is the log."""
        text = "Wall time {} a certificate that the controller shows counts."
        begin = GaugeMetricFamily(f"{_SERVED}_begin_timestamp_seconds", text.format("from which on"), labels=["serves"])
        end = GaugeMetricFamily(f"{_SERVED}_end_timestamp_seconds", text.format("until which"), labels=["serves"])
        for serves, path in self._files.items():
            try:
                valid = validity_in(Path(path))
            except UplinkError:
                continue
            begin.add_metric([serves], valid.begins_at_s)
            end.add_metric([serves], valid.ends_at_s)
        yield from (family for family in (begin, end) if family.samples)


def served_certificates(config: ControllerConfig) -> ServedCertificates:
    """What a controller's configuration says of them."""
    server, web = config.server.tls, config.web
    files = {} if server is None else {"agents": server.cert}
    return ServedCertificates(files | ({} if web is None or web.cert is None else {"web": web.cert}))


_SERVED = "fleetd_controller_certificate"
