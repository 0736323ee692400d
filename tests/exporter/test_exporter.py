"""The exporter, scraped for real and read with Prometheus's own parser."""

import gzip
import http.client
import select
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from fleetd.exporter.config import AgentExporterConfig, ControllerExporterConfig, ExporterConfig, parse_listen
from fleetd.exporter.native import AgentCollector, BuildCollector
from fleetd.exporter.page import Collector
from fleetd.exporter.server import Exporter
from fleetd.loopback import free_ports
from fleetd.model.host import Gpu
from fleetd.model.ids import GpuId
from fleetd.model.status import AgentStatus
from fleetd.model.telemetry import FAMILIES, METRICS, GpuSample
from fleetd.ports import PortError
from fleetd.web.config import WebConfig

GPUS = tuple(
    Gpu(gpu=GpuId(f"GPU-{i}"), index=i, vendor="nvidia", sku='H200 "SXM"', pci_address=None if i else "0000:1b:00.0")
    for i in range(2)
)
STATUS = AgentStatus(
    inventory=GPUS,
    samples=(
        GpuSample(gpu=GpuId("GPU-0"), at_s=1.0, power_watts=692.5, energy_joules_total=5e12, utilization_ratio=0.0),
        GpuSample(gpu=GpuId("GPU-1"), at_s=1.0, power_watts=77.0),
    ),
    samples_age_s=0.25,
    silent_gpus=(),
    overruns_total=2,
    uplink_connected=True,
    spool_pending=3,
    spool_dropped_total=0,
    findings_total=4,
    kernel_log_age_s=0.5,
    kernel_log_lost_total=0,
    errors_total={"device": 5, "store": 0},
    burnin_runs_total={"pass": 1, "fail": 0, "not_judged": 0},
)


@contextmanager
def serving(collectors: Sequence[Collector], listen: str = "127.0.0.1:0") -> Iterator[Exporter]:
    exporter = Exporter(listen, collectors)
    try:
        yield exporter
    finally:
        exporter.close()


def scraped(exporter: Exporter, host: str = "127.0.0.1") -> tuple[dict[str, str], dict[tuple[str, ...], float]]:
    """Family → type, and (sample, label values…) → value."""
    with urllib.request.urlopen(f"http://{host}:{exporter.port}/metrics", timeout=60) as response:
        text = response.read().decode()
    kinds, values = {}, {}
    for family in text_string_to_metric_families(text):
        kinds[family.name] = family.type
        for sample in family.samples:
            key = (sample.name, *(sample.labels[label] for label in sorted(sample.labels)))
            assert key not in values
            values[key] = sample.value
    return kinds, values


def test_gpus_and_the_agent_itself_are_served() -> None:
    with serving([AgentCollector(lambda: STATUS), BuildCollector("0.1.0")]) as exporter:
        kinds, values = scraped(exporter)
    assert values["fleetd_gpu_power_watts", "GPU-0"] == 692.5
    assert values["fleetd_gpu_power_watts", "GPU-1"] == 77.0
    assert values["fleetd_gpu_energy_joules_total", "GPU-0"] == 5e12
    assert kinds["fleetd_gpu_energy_joules"] == "counter"
    assert values["fleetd_gpu_utilization_ratio", "GPU-0"] == 0.0
    assert values["fleetd_gpu_info", "", "", "GPU-0", "0", "0000:1b:00.0", 'H200 "SXM"', "", "nvidia"] == 1.0
    assert values["fleetd_gpu_info", "", "", "GPU-1", "1", "", 'H200 "SXM"', "", "nvidia"] == 1.0
    assert values["fleetd_gpu_sample_age_seconds", "GPU-0"] == 0.25
    assert values["fleetd_agent_uplink_connected",] == 1.0
    assert values["fleetd_agent_spool_pending",] == 3.0
    assert values["fleetd_agent_findings_total",] == 4.0
    assert values["fleetd_agent_sample_overruns_total",] == 2.0
    assert values["fleetd_agent_errors_total", "device"] == 5.0
    assert values["fleetd_agent_burnin_runs_total", "not_judged"] == 0.0
    assert values["fleetd_build_info", "0.1.0"] == 1.0
    assert values["process_resident_memory_bytes",] > 0


def test_s41_what_was_not_read_is_left_out_and_never_zero() -> None:
    with serving([AgentCollector(lambda: replace(STATUS, samples_age_s=None))]) as exporter:
        kinds, values = scraped(exporter)
    assert ("fleetd_gpu_energy_joules_total", "GPU-1") not in values
    assert "fleetd_gpu_temperature_celsius" not in kinds
    assert "fleetd_gpu_sample_age_seconds" not in kinds


def test_every_metric_of_the_catalogue_is_served_under_its_name() -> None:
    full = GpuSample(gpu=GpuId("GPU-0"), at_s=1.0, **{metric.name: 1.0 for metric in METRICS})
    with serving([AgentCollector(lambda: replace(STATUS, samples=(full,)))]) as exporter:
        kinds, values = scraped(exporter)
    for metric in METRICS:
        assert values[f"fleetd_gpu_{metric.name}", "GPU-0"] == 1.0
        assert kinds[f"fleetd_gpu_{metric.name}".removesuffix("_total")] == metric.kind
        assert metric.name.endswith("_total") == (metric.kind == "counter")


def test_every_family_is_served_with_its_label() -> None:
    full = GpuSample(gpu=GpuId("GPU-0"), at_s=1.0, **{family.name: (("a", 1.0), ("b", 2.0)) for family in FAMILIES})
    with serving([AgentCollector(lambda: replace(STATUS, samples=(full,)))]) as exporter:
        kinds, values = scraped(exporter)
    for family in FAMILIES:
        found = {key: value for key, value in values.items() if key[0] == f"fleetd_gpu_{family.name}"}
        assert sorted(found.values()) == [1.0, 2.0]
        assert all("GPU-0" in key for key in found)
        assert kinds[f"fleetd_gpu_{family.name}".removesuffix("_total")] == family.kind
        assert family.name.endswith("_total") == (family.kind == "counter")


def ask(exporter: Exporter, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", exporter.port, timeout=60)
    connection.request(method, "/metrics", headers={name.replace("_", "-"): value for name, value in headers.items()})
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response.status, dict(response.getheaders()), body


def test_the_format_and_the_encoding_are_what_the_client_asks_for() -> None:
    with serving([AgentCollector(lambda: STATUS)]) as exporter:
        _, headers, plain = ask(exporter)
        assert headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        _, headers, packed = ask(exporter, Accept_Encoding="gzip")
        assert headers["Content-Encoding"] == "gzip"
        same = b"fleetd_gpu_power_watts"
        assert gzip.decompress(packed).count(same) == plain.count(same) > 0
        assert len(packed) < len(plain) / 2
        _, headers, text = ask(exporter, Accept="application/openmetrics-text; version=1.0.0")
        assert headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
        families = {family.name: family for family in read_openmetrics(text.decode())}
        assert families["process_cpu_seconds"].type == families["fleetd_agent_findings"].type == "counter"


def test_the_page_can_be_looked_at_and_nothing_else() -> None:
    with serving([AgentCollector(lambda: STATUS)]) as exporter:
        status, headers, body = ask(exporter, "HEAD")
        assert (status, body) == (200, b"")
        assert int(headers["Content-Length"]) > 1000
        assert ask(exporter, "POST")[0] == 405


def test_the_series_are_bounded_by_the_gpus() -> None:
    with serving([AgentCollector(lambda: STATUS)]) as exporter:
        first = set(scraped(exporter)[1])
        assert set(scraped(exporter)[1]) == first


def test_a_port_in_use_is_one_clear_error() -> None:
    with (
        serving([]) as exporter,
        pytest.raises(PortError, match=r"127\.0\.0\.1:\d+: Address already in use; stop what"),
    ):
        Exporter(f"127.0.0.1:{exporter.port}", [])


def test_an_address_that_is_not_ours_is_one_clear_error() -> None:
    with pytest.raises(PortError, match=r"192\.0\.2\.1:9466"):
        Exporter("192.0.2.1:9466", [])


def test_the_port_is_free_after_close() -> None:
    (port,) = free_ports(1)
    for _ in range(2):
        with serving([], f"127.0.0.1:{port}") as exporter:
            assert exporter.port == port


ALONE = """
import os, resource, signal, socket, sys, threading, time, urllib.request
from fleetd.exporter.server import Exporter

exporter = Exporter("127.0.0.1:0", [])

def scrape():
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{exporter.port}/metrics", timeout=60) as answer:
            return answer.status
    except OSError:
        return 0
"""
"""A process of its own, whose threads and descriptors may run out."""


def alone(script: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", ALONE + script], capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout.split()


def test_scrapes_go_on_when_there_are_threads_again() -> None:
    said = alone("""
threading.stack_size(1 << 46)  # more than any machine has: no thread can be started
print(*{scrape() for _ in range(10)})
threading.stack_size(0)
print(scrape())
exporter.close()
""")
    assert said == ["0", "200"]


def test_without_descriptors_it_waits_and_does_not_spin() -> None:
    said = alone("""
client = socket.socket()
held = []
resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
try:
    while True:
        held.append(os.dup(0))
except OSError:
    pass
client.connect(("127.0.0.1", exporter.port))
client.sendall(b"GET /metrics HTTP/1.0\\r\\n\\r\\n")
client.settimeout(1.0)
before_s = time.process_time()
try:
    client.recv(1)
except TimeoutError:
    print(time.process_time() - before_s < 0.5)
for one in held:
    os.close(one)
client.settimeout(60.0)
print(client.recv(1))
exporter.close()
""")
    assert said == ["True", "b'H'"]


def test_close_does_not_wait_for_a_process_that_was_forked() -> None:
    said = alone("""
pid = os.fork()
if pid == 0:
    signal.pause()
closing = threading.Thread(target=exporter.close, daemon=True)
closing.start()
closing.join(60)
print(closing.is_alive())
os.kill(pid, signal.SIGKILL)
""")
    assert said == ["False"]


def test_clients_that_say_nothing_neither_block_nor_pile_up() -> None:
    with serving([AgentCollector(lambda: STATUS)]) as exporter:
        idle = [socket.create_connection(("127.0.0.1", exporter.port), timeout=60) for _ in range(5)]
        assert scraped(exporter)[1]["fleetd_agent_findings_total",] == 4.0
        more = [socket.create_connection(("127.0.0.1", exporter.port), timeout=60) for _ in range(10)]
        assert more[-1].recv(1) == b"", "one too many is turned away"
        for connection in idle + more:
            connection.close()


def test_a_client_that_trickles_is_hung_up_on() -> None:
    exporter = Exporter("127.0.0.1:0", [], request_s=0.2)
    try:
        with socket.create_connection(("127.0.0.1", exporter.port), timeout=60) as slow:
            slow.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
            for _ in range(400):
                if select.select([slow], [], [], 0.05)[0]:
                    break
                with suppress(ConnectionError):  # it may be hung up on at this very moment
                    slow.sendall(b"a")
            with suppress(ConnectionError):
                assert slow.recv(1) == b""
    finally:
        exporter.close()


@pytest.mark.parametrize(
    ("listen", "expected"),
    [("127.0.0.1:9466", ("127.0.0.1", 9466)), ("[::1]:0", ("::1", 0)), ("0.0.0.0:80", ("0.0.0.0", 80))],  # noqa: S104
)
def test_addresses(listen: str, expected: tuple[str, int]) -> None:
    assert parse_listen(listen) == expected


def test_what_cannot_be_served_is_refused_when_the_configuration_is_read() -> None:
    assert AgentExporterConfig(compat="dcgm").listen == AgentExporterConfig().listen
    with pytest.raises(ValueError, match="compat: 'rdc' is none of dcgm"):
        AgentExporterConfig(compat="rdc")
    with pytest.raises(ValueError, match=r"is no ADDRESS:PORT"):
        AgentExporterConfig(listen="nowhere")


def test_an_agent_and_a_controller_fit_on_one_host() -> None:
    """By default, each on a port of its own; the controller asks agents where they listen by default."""
    agent, controller = AgentExporterConfig().listen, ControllerExporterConfig().listen
    assert parse_listen(agent)[0] == parse_listen(controller)[0] == "127.0.0.1"
    assert parse_listen(agent)[1] != parse_listen(controller)[1]
    assert parse_listen(agent)[1] == WebConfig(listen="127.0.0.1:0", insecure=True).agents_port


@pytest.mark.parametrize(
    "listen", ["", "9466", ":9466", "localhost:9466", "127.0.0.1:", "127.0.0.1:99999", "127.0.0.1:x"]
)
def test_what_is_no_address_is_refused_when_the_configuration_is_read(listen: str) -> None:
    with pytest.raises(ValueError, match="is no ADDRESS:PORT"):
        ExporterConfig(listen=listen)
