"""What agents and controllers show of their certificates' lives: an alert has to come before the end."""

import asyncio
import random
from pathlib import Path

from prometheus_client.metrics_core import Metric

from fleetd.agent.renewal import Renewal
from fleetd.compose.certificate import CertificateCollector, served_certificates
from fleetd.config.files import ControllerConfig
from fleetd.ports import Validity
from fleetd.uplink.config import ServerConfig
from fleetd.uplink.pki import VALID_DAYS, DevPki, make_dev_pki
from fleetd.web.config import WebConfig

NOW_S = 1_800_000_000.0
DAY_S = 86400.0


def values(families: list[Metric]) -> dict[tuple[str, ...], float]:
    return {(s.name, *s.labels.values()): s.value for family in families for s in family.samples}


def test_a_controller_shows_the_life_of_each_certificate_that_it_shows(tmp_path: Path) -> None:
    pki = tmp_path / "pki"
    make_dev_pki(pki, DevPki(hosts=(), operators=()), now_s=NOW_S)
    (cert,) = pki.glob("controller.crt")
    key, ca = cert.with_suffix(".key"), pki / "ca.crt"
    server = ServerConfig(listen="127.0.0.1:0", ca=str(ca), cert=str(cert), key=str(key))
    web = WebConfig(listen="127.0.0.1:0", cert=str(cert), key=str(key), ca=str(ca))
    collector = served_certificates(ControllerConfig(state_dir=tmp_path, server=server, web=web))
    found = values(list(collector.collect()))
    for serves in ("agents", "web"):
        end = found["fleetd_controller_certificate_end_timestamp_seconds", serves]
        begin = found["fleetd_controller_certificate_begin_timestamp_seconds", serves]
        assert end == NOW_S + VALID_DAYS * DAY_S
        assert NOW_S - DAY_S < begin <= NOW_S
    cert.write_text("no certificate")
    assert list(collector.collect()) == [], "what cannot be read is not made up, and the page goes on"


def test_without_tls_there_is_none_to_show(tmp_path: Path) -> None:
    config = ControllerConfig(state_dir=tmp_path, server=ServerConfig(listen="127.0.0.1:0", insecure=True))
    assert list(served_certificates(config).collect()) == []


class Own:
    """A certificate of which a tenth is over."""

    def validity(self) -> Validity:
        return Validity(begins_at_s=NOW_S - DAY_S, ends_at_s=NOW_S + 9 * DAY_S)

    async def renew(self) -> None:
        raise AssertionError("there is no reason to")


class StillClock:
    def wall_s(self) -> float:
        return NOW_S

    def elapsed_s(self) -> float:
        return 0.0

    async def sleep_s(self, seconds: float) -> None:
        del seconds
        raise asyncio.CancelledError


def test_an_agent_shows_the_life_of_its_own() -> None:
    renewal = Renewal(Own(), renew=True, clock=StillClock(), rng=random.Random(1), renewed=lambda: None)  # noqa: S311 - no secret
    collector = CertificateCollector(renewal, started_at_s=NOW_S)
    assert not [name for name, *_ in values(list(collector.collect())) if "timestamp" in name], "it has not looked yet"

    async def look_once() -> None:
        task = asyncio.create_task(renewal.run())
        await asyncio.wait([task])

    asyncio.run(look_once())
    found = values(list(collector.collect()))
    assert found["fleetd_agent_certificate_begin_timestamp_seconds",] == NOW_S - DAY_S
    assert found["fleetd_agent_certificate_end_timestamp_seconds",] == NOW_S + 9 * DAY_S
