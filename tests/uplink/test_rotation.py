"""Certificates end, are replaced and are turned down, while agents report: nothing is lost, and each is told."""

import asyncio
import random
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from structlog.testing import capture_logs

from fleetd.agent.renewal import Renewal
from fleetd.controller.enrolment import Enrolment
from fleetd.model.ids import HostName
from fleetd.ports import Refused, UplinkError
from fleetd.system import RealClock, run_blocking, secret
from fleetd.uplink.authority import FileAuthority
from fleetd.uplink.certificate import common_name
from fleetd.uplink.channel import open_channel
from fleetd.uplink.config import TlsFiles, UplinkConfig
from fleetd.uplink.renew import main as carry_out
from fleetd.uplink.renewer import OwnCertificate
from fleetd.uplink.token_book import SqliteTokenBook
from fleetd.uplink.validity import validity_in, validity_of

H01 = HostName("h01")


class AheadClock(RealClock):
    """The controller's wall clock, which the test sets; TLS has its own."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def wall_s(self) -> float:
        return super().wall_s() + self.ahead_s

    async def sleep_s(self, seconds: float) -> None:
        until_s = self.wall_s() + seconds
        while self.wall_s() < until_s:
            await super().sleep_s(0.01)


@pytest.mark.parametrize(
    ("stem", "names", "times"),
    [
        ("expired", ["fleetd://agent/h01"], {"begins_s": -7200.0, "ends_s": -3600.0}),
        ("early", ["fleetd://agent/h01"], {"begins_s": 3600.0, "ends_s": 7200.0}),
    ],
)
def test_a_certificate_out_of_its_time_gets_nowhere(
    play: Any, make: Any, stem: str, names: list[str], times: dict[str, float]
) -> None:
    async def scenario(bench: Any) -> None:
        make.certify(bench, stem, names, **times)
        async with bench.server() as server:
            uplink = bench.uplink(server.port, tls=bench.tls(stem))
            async with bench.agent(uplink, bench.spool()):
                await make.eventually(lambda: uplink.failures_total > 1)
            assert "that it accepts this certificate" in uplink.last_error
            assert bench.door.hellos == []

    play(scenario)


@pytest.mark.parametrize(
    "names",
    [
        [],
        ["fleetd://agent/h01", "fleetd://operator/ann"],
        ["fleetd://agent/h01", "fleetd://agent/h02"],
        ["fleetd://root/h01"],
        ["fleetd://agent/h01/../h02"],
        ["fleetd://agent/"],
        ["https://agent/h01"],
    ],
    ids=["nobody", "two roles", "two hosts", "no role", "a path", "no name", "not ours"],
)
def test_a_good_certificate_that_does_not_name_one_peer_is_refused_everywhere(
    play: Any, make: Any, names: list[str]
) -> None:
    async def scenario(bench: Any) -> None:
        make.certify(bench, "odd", names)
        async with bench.server() as server:
            uplink = bench.uplink(server.port, tls=bench.tls("odd"))
            async with bench.agent(uplink, bench.spool()):
                await make.eventually(lambda: "must name one peer" in uplink.last_error)
            async with bench.desk(server.port, stem="odd") as desk:
                with pytest.raises(Refused, match="must name one peer"):
                    await desk.hosts()
            assert bench.door.hellos == []

    play(scenario)


def test_a_session_ends_with_its_certificate_and_goes_on_with_the_next(play: Any, make: Any) -> None:
    async def scenario(bench: Any) -> None:
        make.certify(bench, "h01", ["fleetd://agent/h01"], ends_s=3600.0)
        bench.clock = AheadClock()
        spool = bench.spool()
        async with bench.server() as server:
            uplink = bench.uplink(server.port, tls=bench.tls("h01"))
            async with bench.agent(uplink, spool):
                await make.eventually(lambda: uplink.connected)
                for suffix in (".crt", ".key"):  # somebody replaces the files meanwhile
                    shutil.copy(bench.pki / f"agents/h01{suffix}", bench.path / "made" / f"h01{suffix}")
                spool.append(make.fault("a"))
                await make.eventually(lambda: spool.depth == 0)
                with capture_logs() as logs:
                    bench.clock.ahead_s = 3601.0
                    await make.eventually(lambda: uplink.connects_total == 2)
                spool.append(make.fault("b"))
                await make.eventually(lambda: spool.depth == 0)
            (told,) = [entry for entry in logs if entry["event"] == "uplink_drained"]
            assert told["why"] == "the certificate that this connection began with has ended"
        assert (bench.door.ids(), uplink.failures_total) == (["a", "b"], 0)

    play(scenario)


def test_a_connection_that_outlives_its_certificate_asks_for_nothing_more(play: Any, make: Any) -> None:
    """Not even for a new certificate: what has ended proves nothing to renew with."""

    async def scenario(bench: Any) -> None:
        for role, name in (("operator", "ann"), ("agent", "h01")):
            make.certify(bench, name, [f"fleetd://{role}/{name}"], ends_s=3600.0)
        bench.clock = AheadClock()
        async with bench.server() as server, bench.desk(server.port, stem="ann") as ann:
            files = TlsFiles(**bench.tls("h01"))
            async with open_channel(f"127.0.0.1:{server.port}", files, receive_max_bytes=1 << 20) as channel:
                renew = channel.unary_unary("/fleetd.pb.v1.Identity/Renew")
                await ann.hosts()
                with pytest.raises(grpc.aio.AioRpcError, match="the site's CA does"):  # it was asked
                    await renew(b"")
                bench.clock.ahead_s = 3601.0
                with pytest.raises(Refused, match="the certificate of this connection has ended: connect anew"):
                    await ann.hosts()
                with pytest.raises(grpc.aio.AioRpcError, match="the certificate of this connection has ended"):
                    await renew(b"")

    play(scenario)


def test_the_sites_certificates_rotate_on_both_sides_under_traffic(play: Any, make: Any) -> None:
    """Whoever manages the files replaces them one by one: a pair that does not fit is passed by."""

    async def scenario(bench: Any) -> None:
        live = bench.path / "live"
        shutil.copytree(bench.pki, live)
        ours, bench.pki = bench.pki, live
        spool, sent = bench.spool(), 0

        def find(count: int) -> None:
            nonlocal sent
            for _ in range(count):
                spool.append(make.fault(f"f{sent:04d}"))
                sent += 1

        def replaced(stem: str, suffix: str, fresh: Path) -> None:
            beside = live / f"{stem}{suffix}.new"
            shutil.copy(fresh / f"{stem}{suffix}", beside)
            beside.replace(live / f"{stem}{suffix}")

        fresh = bench.path / "fresh"
        make.reissue(ours, fresh, hosts=("h01",))
        async with bench.server() as server:
            uplink = bench.uplink(server.port)
            async with bench.agent(uplink, spool):
                await make.eventually(lambda: uplink.connected)
                find(20)
                replaced("controller", ".key", fresh)
                find(20)
                replaced("controller", ".crt", fresh)
                for suffix in (".key", ".crt"):
                    replaced("agents/h01", suffix, fresh)
                find(20)
                await make.eventually(lambda: spool.depth == 0)
            assert (uplink.connects_total, uplink.failures_total) == (1, 0)  # the stream went on all the while
            async with bench.agent(uplink, spool):  # and a new one uses the new files of both sides
                find(20)
                await make.eventually(lambda: spool.depth == 0)
            assert (uplink.connects_total, uplink.failures_total) == (2, 0)
        assert bench.door.ids() == [f"f{n:04d}" for n in range(sent)]

    play(scenario)


def authority(bench: Any, *, life_s: float = 30 * 86400.0) -> Enrolment:
    ca, ca_key = bench.pki / "ca.crt", bench.pki / "ca.key"
    return Enrolment(
        book=SqliteTokenBook(bench.path / "enrolment.db"),
        signer=FileAuthority(ca, ca_key, trusted=ca, life_s=life_s),
        clock=bench.clock,
        run_blocking=run_blocking,
        secret=secret,
        token_s=3600.0,
    )


def contents(path: str) -> bytes:
    return Path(path).read_bytes()


def test_an_agent_renews_under_traffic_and_loses_nothing(play: Any, make: Any) -> None:
    """As in the agent: the loop, the short process, the reconnection; three times while findings come in."""

    async def scenario(bench: Any) -> None:
        make.certify(bench, "h01", ["fleetd://agent/h01"], begins_s=-7200.0, ends_s=3000.0)  # 29 % are left
        bench.identity = authority(bench)
        spool, files = bench.spool(), bench.tls("h01")
        first = contents(files["cert"])
        async with bench.server() as server:
            uplink = bench.uplink(server.port, tls=files)
            config = UplinkConfig(address=f"127.0.0.1:{server.port}", renew=True, **files)
            own = OwnCertificate(config, uplink._config.tls, host=H01)
            again = asyncio.Event()
            renewal = Renewal(
                own,
                renew=True,
                clock=RealClock(),
                rng=random.Random(1),  # noqa: S311 - no secret
                renewed=again.set,
            )
            watching = asyncio.create_task(renewal.run())
            try:
                sent = 0
                async with bench.agent(uplink, spool):
                    await make.eventually(lambda: uplink.connected)
                    while not again.is_set():
                        spool.append(make.fault(f"f{sent:05d}"))
                        sent += 1
                        await asyncio.sleep(0.02)
                async with bench.agent(uplink, spool):  # what `renewed` does in the agent: a new connection
                    await make.eventually(lambda: uplink.connects_total == 2)
                    await make.eventually(lambda: spool.depth == 0)
            finally:
                watching.cancel()
                with suppress(asyncio.CancelledError):
                    await watching
        assert bench.door.ids() == [f"f{n:05d}" for n in range(sent)]
        assert contents(files["cert"]) != first
        assert renewal.renewals_total == 1
        assert validity_in(Path(files["cert"])).ends_at_s > RealClock().wall_s() + 29 * 86400

    play(scenario)


def test_what_the_process_that_renews_says_is_told(play: Any, make: Any) -> None:
    async def scenario(bench: Any) -> None:
        make.certify(bench, "h01", ["fleetd://agent/h01"])
        async with bench.server() as server:
            tls = bench.tls("h01")
            own = own_certificate(server.port, tls)
            with pytest.raises(Refused, match="this controller signs no certificates"):
                await own.renew()
            port = server.port
        with pytest.raises(UplinkError, match=rf"cannot reach the controller at 127.0.0.1:{port}"):
            await own.renew()
        shutil.copyfile(tls["ca"], tls["key"])  # no key
        with pytest.raises(UplinkError, match=r"no secure connection|cannot reach"):
            await own.renew()

    play(scenario)


def test_of_several_controllers_one_that_answers_is_enough(play: Any, make: Any) -> None:
    async def scenario(bench: Any) -> None:
        make.certify(bench, "h01", ["fleetd://agent/h01"])
        bench.identity = authority(bench)
        tls = bench.tls("h01")
        async with bench.server() as server:
            order = {"addresses": ["127.0.0.1:1", f"127.0.0.1:{server.port}"], "host": "h01", "answer_s": 10.0, **tls}
            before = contents(tls["cert"])
            assert await asyncio.to_thread(carry_out, order) == {}
            assert contents(tls["cert"]) != before

    play(scenario)


def own_certificate(port: int, files: dict[str, str]) -> OwnCertificate:
    config = UplinkConfig(address=f"127.0.0.1:{port}", renew=True, **files)
    assert config.tls is not None
    return OwnCertificate(config, config.tls, host=H01)


def test_a_process_that_breaks_is_one_line() -> None:
    for said, complaint, why in (
        (b"", b"Traceback\n  x\nOSError: no room\n", "failed: OSError: no room"),
        (b"{", b"", "failed: it said nothing"),
        (b'{"failed": "cannot write"}', b"", "cannot write"),
    ):
        with pytest.raises(UplinkError, match=why) as caught:
            OwnCertificate._judge(said, complaint)
        assert "\n" not in str(caught.value)


# ── the authority's own files ───────────────────────────────────────────────────────────────────────────────────────


def test_an_authority_that_cannot_sign_is_told_at_the_start(tmp_path: Path, certificates: tuple[Path, Path]) -> None:
    ours, foreign = certificates
    ca, key = tmp_path / "ca.crt", tmp_path / "ca.key"
    shutil.copy(ours / "ca.crt", ca)
    shutil.copy(ours / "ca.key", key)
    open_to_all = tmp_path / "open.key"
    shutil.copy(key, open_to_all)
    open_to_all.chmod(0o644)
    for files, why in (
        ((tmp_path / "none", key, ca), "cannot read .*none: No such file"),
        ((ca, tmp_path / "none", ca), "cannot read .*none: No such file"),
        ((key, key, ca), "holds no certificate"),
        ((ca, ca, ca), "may be used by others|holds no private key"),
        ((ca, open_to_all, ca), "the private key .*open.key may be used by others"),
        ((ca, foreign / "ca.key", ca), "is not that of the first certificate"),
        ((ours / "agents/h01.crt", ours / "agents/h01.key", ca), "is not one of an authority"),
        ((ca, key, foreign / "ca.crt"), "would turn away what .* signs"),
    ):
        with pytest.raises(UplinkError, match=why) as caught:
            FileAuthority(files[0], files[1], trusted=files[2], life_s=600.0)
        assert "\n" not in str(caught.value)


def test_nothing_it_signs_counts_longer_than_itself(certificates: tuple[Path, Path]) -> None:
    ca, ca_key = certificates[0] / "ca.crt", certificates[0] / "ca.key"
    signer, now_s = FileAuthority(ca, ca_key, trusted=ca, life_s=3650 * 86400.0), RealClock().wall_s()
    key = ec.generate_private_key(ec.SECP384R1())
    csr = x509.CertificateSigningRequestBuilder().subject_name(common_name("x")).sign(key, hashes.SHA256())
    asked = signer.read(csr.public_bytes(Encoding.PEM).decode())
    chain, valid = signer.sign(H01, asked, now_s=now_s)
    assert valid == validity_of(chain.encode(), where="made")
    assert valid.ends_at_s == validity_in(ca).ends_at_s
    with pytest.raises(UplinkError, match=r"ended at .*: replace it"):
        signer.sign(H01, asked, now_s=now_s + 400 * 86400)
