"""Prometheus: collectors that read snapshots at scrape time, and the small HTTP server that shows them.

The server has threads of its own, so it answers while the event loop is busy; a collector must therefore read nothing
but snapshots. Label sets are closed: GPUs of this host, verdicts, kinds of error.
"""

import contextlib
import ipaddress
import socket
import socketserver
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, ProcessCollector, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric

from fleetd.model.host import Gpu
from fleetd.model.status import AgentStatus
from fleetd.model.telemetry import FAMILIES, METRICS, GpuSample, Labelled
from fleetd.ports import PortError

_REQUESTS_MAX = 8
"""Scrapes served side by side; one more is turned away at once, so that slow readers cannot pile threads up."""
_REQUEST_S = 10.0
"""A client that has not sent its request and taken the answer by then is hung up on, however busy it looks."""
_PORT_MAX = 65535


@dataclass(frozen=True, slots=True, kw_only=True)
class ExporterConfig:
    """Where Prometheus finds the metrics."""

    listen: str = "127.0.0.1:9466"
    """`ADDRESS:PORT`, IPv6 in brackets. Metrics are served without authentication: beyond loopback they are readable
    by everybody who reaches the port. Port 0: any free one."""

    def __post_init__(self) -> None:
        """Refuse what is no address. Raises ValueError."""
        parse_listen(self.listen)


def parse_listen(listen: str) -> tuple[str, int]:
    """Split `ADDRESS:PORT`. Raises ValueError."""
    host, colon, port = listen.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") if host.startswith("[") else host
    try:
        ipaddress.ip_address(host)
        valid = bool(colon) and port.isdecimal() and int(port) <= _PORT_MAX
    except ValueError:
        valid = False
    if not valid:
        raise ValueError(f"listen: {listen!r} is no ADDRESS:PORT; write for example 127.0.0.1:9466 or [::1]:9466")
    return host, int(port)


class Collector(Protocol):
    """Anything that makes metric families from a snapshot. Called on a server thread; must not block."""

    def collect(self) -> Iterable[Metric]:
        """All families, each name once over all collectors of an exporter."""


class Exporter:
    """Serves collectors at `/metrics` (any path answers). It starts at once; `close` ends it."""

    def __init__(self, listen: str, collectors: Sequence[Collector], *, request_s: float = _REQUEST_S) -> None:
        """Listen and serve. Raises PortError when the address cannot be had, ValueError when it is none."""
        host, port = parse_listen(listen)
        # A registry of its own, and no process-wide one: two agents in one process must not see each other's metrics.
        registry = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=registry)
        for collector in collectors:
            registry.register(collector)
        try:
            self._server = (_Server6 if ":" in host else _Server)((host, port), _Handler, request_s)
        except OSError as error:
            advice = "stop what listens there, or set another `listen`"
            raise PortError(f"metrics cannot be served on {listen}: {error.strerror}; {advice}") from error
        self._server.set_app(make_wsgi_app(registry))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="exporter", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that is listened on; of interest when 0 was asked for."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Stop serving; idempotent. A scrape in progress is not waited for."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(socketserver.ThreadingMixIn, WSGIServer):
    """WSGI with a bounded number of threads."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 16

    def __init__(self, address: tuple[str, int], handler: type[WSGIRequestHandler], request_s: float) -> None:
        self._request_s = request_s
        self._slots = threading.BoundedSemaphore(_REQUESTS_MAX)
        super().__init__(address, handler)

    def server_bind(self) -> None:
        """Bind without the look-up of our own name in DNS, which can hang for half a minute."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve on a thread, or hang up when there are too many already."""
        if self._slots.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """One request, on its thread."""
        # A limit for the whole of it: with one for each read, a client that sends a byte now and then stays for ever.
        limit = threading.Timer(self._request_s, _hang_up, (request,))
        limit.daemon = True
        limit.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            limit.cancel()
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up or falls silent is no event for the log."""


def _hang_up(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it has just ended by itself
        connection.shutdown(socket.SHUT_RDWR)


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """A scrape a second is no event for the log."""


# ── collectors ──────────────────────────────────────────────────────────────────────────────────────────────────────


class BuildCollector:
    """`fleetd_build_info`."""

    def __init__(self, version: str) -> None:
        self._version = version

    def collect(self) -> Iterable[Metric]:
        """The version as a label."""
        yield InfoMetricFamily("fleetd_build", "Version of fleetd.", value={"version": self._version})


class AgentCollector:
    """The GPUs of one host and the agent itself."""

    def __init__(self, status: Callable[[], AgentStatus]) -> None:
        self._status = status

    def collect(self) -> Iterable[Metric]:
        """One consistent snapshot."""
        status = self._status()
        yield from _gpu_families(status.samples)
        yield _gpu_info(status.inventory)
        if status.samples_age_s is not None:
            text = "Seconds since the GPUs were last read."
            yield GaugeMetricFamily("fleetd_gpu_sample_age_seconds", text, value=status.samples_age_s)
        yield from _agent_families(status)


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


def _gpu_info(inventory: Sequence[Gpu]) -> Metric:
    """What may change under a GPU's name, to be joined by `gpu`."""
    labels = ["gpu", "index", "sku", "vendor", "pci_address", "vbios", "firmware", "driver"]
    family = GaugeMetricFamily("fleetd_gpu_info", "GPUs of this host; index and address may change.", labels=labels)
    for gpu in inventory:
        versions = (gpu.pci_address or "", gpu.vbios or "", gpu.firmware or "", gpu.driver or "")
        family.add_metric([gpu.gpu, str(gpu.index), gpu.sku, gpu.vendor, *versions], 1.0)
    return family


def _agent_families(status: AgentStatus) -> Iterable[Metric]:
    gauges: tuple[tuple[str, str, float], ...] = (
        ("silent_gpus", "GPUs that have given no sample for so long that it was reported.", status.silent_gpus),
        ("uplink_connected", "1 while the controller answers, else 0.", status.uplink_connected),
        ("spool_pending", "Findings that the controller has not acknowledged.", status.spool_pending),
    )
    for name, text, value in gauges:
        yield GaugeMetricFamily(f"fleetd_agent_{name}", text, value=value)
    if status.kernel_log_age_s is not None:
        text = "Seconds since the kernel log last answered, also with nothing new."
        yield GaugeMetricFamily("fleetd_agent_kernel_log_age_seconds", text, value=status.kernel_log_age_s)
    if status.kernel_log_lost_total is not None:
        text = "Kernel log records that were lost before they were read."
        yield CounterMetricFamily("fleetd_agent_kernel_log_lost_total", text, value=status.kernel_log_lost_total)
    counters = (
        ("spool_dropped_total", "Findings that the bounded spool had to drop.", status.spool_dropped_total),
        ("findings_total", "Findings made on this host.", status.findings_total),
        ("sample_overruns_total", "Samples skipped because the one before took too long.", status.overruns_total),
    )
    for name, text, value in counters:
        yield CounterMetricFamily(f"fleetd_agent_{name}", text, value=value)
    errors = CounterMetricFamily("fleetd_agent_errors_total", "Operating failures by kind.", labels=["kind"])
    for kind, value in sorted(status.errors_total.items()):
        errors.add_metric([kind], value)
    yield errors
    runs = CounterMetricFamily("fleetd_agent_burnin_runs_total", "Burn-ins that ended, by verdict.", labels=["verdict"])
    for verdict, value in sorted(status.burnin_runs_total.items()):
        runs.add_metric([verdict], value)
    yield runs
