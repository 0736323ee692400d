"""A host comes by its certificate: over real TLS, with the real authority and the real book."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID

from fleetd.controller.enrolment import Enrolment
from fleetd.model.ids import HostName
from fleetd.pb.v1 import agent_pb2, desk_pb2, identity_pb2
from fleetd.pb.v1.agent_pb2_grpc import AgentLinkStub
from fleetd.pb.v1.desk_pb2_grpc import DeskStub
from fleetd.pb.v1.identity_pb2_grpc import EnrolmentStub, IdentityStub
from fleetd.ports import Attempt, Peer, Refused, UplinkError, Validity
from fleetd.system import RealClock, run_blocking, secret
from fleetd.uplink.authority import FileAuthority
from fleetd.uplink.certificate import client_names, common_name
from fleetd.uplink.channel import open_channel
from fleetd.uplink.config import TlsFiles
from fleetd.uplink.enrol import Files, enrol, renew
from fleetd.uplink.enrol_config import EnrolmentConfig
from fleetd.uplink.identity_service import serve_enrolment
from fleetd.uplink.key_files import waiting_key
from fleetd.uplink.tls import root_credentials
from fleetd.uplink.token_book import SqliteTokenBook
from fleetd.uplink.validity import validity_in

ANN = Peer(name="ann", role="operator")
H01 = HostName("h01")


class ShiftedClock(RealClock):
    def __init__(self) -> None:
        self.ahead_s = 0.0

    def wall_s(self) -> float:
        return super().wall_s() + self.ahead_s

    def elapsed_s(self) -> float:
        return super().elapsed_s() + self.ahead_s


@dataclass
class Site:
    """A controller's enrolment, and what a host has of it."""

    door: Enrolment
    book: SqliteTokenBook
    clock: ShiftedClock
    files: Files
    address: str

    async def token(self, host: HostName = H01) -> str:
        return (await self.door.issue_token(ANN, host, "new rack")).token

    async def enrol(self, token: str, *, host: HostName = H01, force: bool = False, **files: Path) -> Validity:
        return await asyncio.to_thread(
            enrol,
            self.address,
            replace(self.files, **files),
            host=host,
            token=token,
            answer_s=10.0,
            now_s=self.clock.wall_s(),
            force=force,
        )

    def audit(self) -> list[tuple[str, str, str, bool]]:
        return [(a.what, a.host, a.who, a.refused) for a in reversed(self.book.attempts(limit=100))]


@asynccontextmanager
async def opened(bench: Any, **options: Any) -> AsyncIterator[Site]:
    """The enrolment port of the bench's controller."""
    clock = bench.clock = ShiftedClock()
    book = SqliteTokenBook(bench.path / "enrolment.db")
    ca, ca_key = bench.pki / "ca.crt", bench.pki / "ca.key"
    config = EnrolmentConfig(ca=ca, ca_key=ca_key, **options)
    door = bench.identity = Enrolment(
        book=book,
        signer=FileAuthority(ca, ca_key, trusted=ca, life_s=config.certificate_seconds),
        clock=clock,
        run_blocking=run_blocking,
        secret=secret,
        token_s=config.token_seconds,
    )
    tls = TlsFiles(**bench.tls("controller"))
    server = await serve_enrolment(config, "127.0.0.1:0", tls=tls, door=door, clock=clock)
    files = Files(ca=ca, cert=bench.path / "host" / "agent.crt", key=bench.path / "host" / "agent.key")
    try:
        yield Site(door=door, book=book, clock=clock, files=files, address=f"127.0.0.1:{server.port}")
    finally:
        await server.stop()


def tls_of(files: Files) -> dict[str, str]:
    return {"ca": str(files.ca), "cert": str(files.cert), "key": str(files.key)}


def test_a_token_becomes_a_certificate_with_which_the_agent_reports(play: Any, make: Any) -> None:
    async def scenario(bench: Any) -> None:
        async with opened(bench) as site, bench.server() as server:
            async with bench.desk(server.port) as ann:
                token = await ann.issue_token(H01, "new rack")
            assert token.expires_at_s == pytest.approx(site.clock.wall_s() + 3600, abs=60)
            valid = await site.enrol(token.token)
            assert valid.ends_at_s == pytest.approx(site.clock.wall_s() + 30 * 86400, abs=60)
            assert site.files.key.stat().st_mode & 0o777 == 0o600
            assert sorted(path.name for path in site.files.key.parent.iterdir()) == ["agent.crt", "agent.key"]
            uplink = bench.uplink(server.port, tls=tls_of(site.files))
            async with bench.agent(uplink, bench.spool()):
                await make.eventually(lambda: uplink.connected)
            ((peer, _, _),) = bench.door.hellos
            assert peer == Peer(name="h01", role="agent")
            assert site.audit() == [
                ("token", "h01", "operator:ann", False),
                ("enrol", "h01", "127.0.0.1", False),
            ]
        # Hashed at rest: whoever reads the file can enrol nobody.
        assert token.token.encode() not in (bench.path / "enrolment.db").read_bytes()
        assert (bench.path / "enrolment.db").stat().st_mode & 0o777 == 0o600

    play(scenario)


def test_the_certificate_is_for_an_agent_only_whatever_the_request_asks_for(play: Any) -> None:
    async def scenario(bench: Any) -> None:
        async with opened(bench) as site:
            key = ec.generate_private_key(ec.SECP256R1())
            greedy = request(
                key,
                x509.SubjectAlternativeName([*client_names("operator", "ann"), x509.DNSName("controller")]),
                x509.BasicConstraints(ca=True, path_length=None),
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]),
            )
            chain = await site.door.enrol("192.0.2.1", await site.token(), H01, greedy)
        (made,) = x509.load_pem_x509_certificates(chain.encode())
        names = list(made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
        assert names == client_names("agent", "h01")
        assert made.extensions.get_extension_for_class(x509.BasicConstraints).value.ca is False
        use = made.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        assert list(use) == [ExtendedKeyUsageOID.CLIENT_AUTH]
        made.verify_directly_issued_by(x509.load_pem_x509_certificate((bench.pki / "ca.crt").read_bytes()))

    play(scenario)


def request(key: Any, *extensions: x509.ExtensionType) -> str:
    builder = x509.CertificateSigningRequestBuilder().subject_name(common_name("x"))
    for extension in extensions:
        builder = builder.add_extension(extension, critical=False)
    algorithm = None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    return builder.sign(key, algorithm).public_bytes(Encoding.PEM).decode()


def test_a_token_is_spent_once_and_its_own_key_may_ask_again(play: Any) -> None:
    async def scenario(bench: Any) -> None:
        async with opened(bench) as site:
            token, mine = await site.token(), request(ec.generate_private_key(ec.SECP256R1()))
            for _ in range(2):  # the first answer was lost
                await site.door.enrol("192.0.2.1", token, H01, mine)
            with pytest.raises(Refused, match="the token was spent already, on another key"):
                await site.door.enrol("192.0.2.9", token, H01, request(ec.generate_private_key(ec.SECP256R1())))
            assert [refused for *_, refused in site.audit()] == [False, False, False, True]

    play(scenario)


def test_of_many_at_once_one_key_gets_it(play: Any) -> None:
    async def scenario(bench: Any) -> None:
        async with opened(bench) as site:
            token = await site.token()
            tries = [
                site.door.enrol("192.0.2.1", token, H01, request(ec.generate_private_key(ec.SECP256R1())))
                for _ in range(8)
            ]
            ends = await asyncio.gather(*tries, return_exceptions=True)
        assert sum(isinstance(end, str) for end in ends) == 1
        assert all(isinstance(end, str | Refused) for end in ends)

    play(scenario)


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda token: (token, HostName("h02"), 0.0), "the token is for another host than h02"),
        (lambda token: (token[:-1] + ("A" if token[-1] != "A" else "B"), H01, 0.0), "no such token is known"),
        (lambda _: ("x", H01, 0.0), "no such token is known"),
        (lambda token: (token, H01, 3601.0), "the token has expired"),
    ],
    ids=["other host", "wrong token", "no token", "too late"],
)
def test_what_is_no_good_is_refused_told_and_audited(
    play: Any, spoil: Callable[[str], tuple[str, HostName, float]], why: str
) -> None:
    async def scenario(bench: Any) -> None:
        async with opened(bench) as site:
            token, host, site.clock.ahead_s = spoil(await site.token())
            with pytest.raises(Refused, match=why):
                await site.enrol(token, host=host)
            assert site.audit()[1:] == [("enrol", host, "127.0.0.1", True)]
            assert not site.files.cert.exists()
            assert not site.files.key.exists()

    play(scenario)


def test_only_operators_make_tokens_and_only_with_a_reason(play: Any) -> None:
    async def scenario(bench: Any) -> None:
        async with opened(bench) as site, bench.server() as server:
            for stem, role in (("viewers/eve", "viewer"), ("agents/h01", "agent")):
                async with bench.desk(server.port, stem=stem) as desk:
                    with pytest.raises(Refused, match=f"has the role {role}; this is for the role operator"):
                        await desk.issue_token(H01, "please")
            async with bench.desk(server.port) as ann:
                with pytest.raises(Refused, match="a token needs a reason"):
                    await ann.issue_token(H01, "  ")
                for odd in ("h01/../operator", "-h01", "a b"):
                    with pytest.raises(Refused, match=r"^agent .*letters, digits"):
                        await ann.issue_token(HostName(odd), "odd")
            with pytest.raises(Refused, match="only an operator may let hosts enrol"):
                await site.door.issue_token(Peer(name="eve", role="viewer"), H01, "please")
            assert site.audit() == []

    play(scenario)


def test_a_controller_without_a_ca_says_whose_business_it_is(play: Any) -> None:
    async def scenario(bench: Any) -> None:
        async with bench.server() as server:
            async with bench.desk(server.port) as ann:
                with pytest.raises(Refused, match="signs no certificates, the site's CA does"):
                    await ann.issue_token(H01, "new rack")
            own = Files(ca=bench.pki / "ca.crt", cert=bench.path / "a.crt", key=bench.path / "a.key")
            own.cert.write_bytes((bench.pki / "agents/h01.crt").read_bytes())
            own.key.touch(mode=0o600)
            own.key.write_bytes((bench.pki / "agents/h01.key").read_bytes())
            with pytest.raises(Refused, match="signs no certificates, the site's CA does"):
                await asyncio.to_thread(renew, f"127.0.0.1:{server.port}", own, host=H01, answer_s=10.0)
            assert own.key.read_bytes() == (bench.pki / "agents/h01.key").read_bytes()

    play(scenario)


def test_the_enrolment_port_serves_nothing_else_and_the_other_port_does_not_enrol(play: Any) -> None:
    async def scenario(bench: Any) -> None:
        async with opened(bench) as site, bench.server() as server:
            roots = root_credentials(str(site.files.ca), where="here")
            with_certificate = TlsFiles(**bench.tls("operators/ann"))
            for tls, credentials in ((None, roots), (with_certificate, None)):
                async with open_channel(
                    site.address, tls, receive_max_bytes=1 << 20, credentials=credentials
                ) as stranger:
                    for ask in (
                        DeskStub(stranger).ListHosts(desk_pb2.ListHostsRequest()),
                        IdentityStub(stranger).IssueToken(identity_pb2.IssueTokenRequest(host="h01", reason="r")),
                        IdentityStub(stranger).Renew(identity_pb2.RenewRequest(csr="")),
                    ):
                        with pytest.raises(grpc.aio.AioRpcError) as caught:
                            await ask
                        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
                    stream = AgentLinkStub(stranger).Connect()
                    await stream.write(agent_pb2.AgentMessage())
                    assert await stream.code() is grpc.StatusCode.UNIMPLEMENTED
            async with open_channel(f"127.0.0.1:{server.port}", with_certificate, receive_max_bytes=1 << 20) as ann:
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await EnrolmentStub(ann).Enrol(identity_pb2.EnrolRequest())
                assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED

    play(scenario)


def test_attempts_are_limited_for_each_address(play: Any) -> None:
    async def scenario(bench: Any) -> None:
        async with opened(bench, attempts_per_second_each=0.001) as site:
            for _ in range(10):
                with pytest.raises(Refused):
                    await site.enrol("x" * 43)
            with pytest.raises(UplinkError, match="turned this away: too many attempts"):
                await site.enrol(await site.token())
            assert len([a for a in site.audit() if a[3]]) == 10

    play(scenario)


@pytest.mark.parametrize(
    ("csr", "why"),
    [
        ("nothing", "damaged"),
        ("é", "damaged"),
        (request(ed25519.Ed25519PrivateKey.generate()), "of the curve P-256 or P-384, or RSA"),
        (request(ec.generate_private_key(ec.SECP521R1())), "of the curve P-256 or P-384, or RSA"),
        (request(rsa.generate_private_key(65537, 1024)), "of the curve P-256 or P-384, or RSA"),  # noqa: S505
    ],
    ids=["nothing", "not ascii", "ed25519", "p521", "rsa 1024"],
)
def test_a_request_that_cannot_be_signed_spends_no_token(play: Any, csr: str, why: str) -> None:
    async def scenario(bench: Any) -> None:
        async with opened(bench) as site:
            token = await site.token()
            with pytest.raises(Refused, match=why):
                await site.door.enrol("192.0.2.1", token, H01, csr)
            await site.enrol(token)

    play(scenario)


def test_a_request_that_another_key_signed_is_refused(play: Any) -> None:
    """Else somebody could have a certificate made for a key that he does not have."""

    async def scenario(bench: Any) -> None:
        async with opened(bench) as site:
            mine = ec.generate_private_key(ec.SECP256R1())
            pem = request(mine)
            der = bytearray(x509.load_pem_x509_csr(pem.encode()).public_bytes(Encoding.DER))
            der[-1] ^= 1
            forged = x509.load_der_x509_csr(bytes(der)).public_bytes(Encoding.PEM).decode()
            with pytest.raises(Refused, match=r"not signed by its own key|damaged"):
                await site.door.enrol("192.0.2.1", await site.token(), H01, forged)

    play(scenario)


def test_an_impostor_of_the_controller_hears_no_token(play: Any) -> None:
    async def scenario(bench: Any) -> None:
        async with opened(bench) as site:
            token = await site.token()
            with pytest.raises(UplinkError, match=r"no secure connection|cannot reach"):
                await site.enrol(token, ca=bench.foreign / "ca.crt")
            assert site.audit()[1:] == []
            await site.enrol(token)

    play(scenario)


def test_a_certificate_that_counts_is_not_replaced_by_mistake(play: Any) -> None:
    async def scenario(bench: Any) -> None:
        async with opened(bench) as site:
            await site.enrol(await site.token())
            before = site.files.key.read_bytes()
            with pytest.raises(Refused, match=r"counts for 30.0 days more: use --force"):
                await site.enrol(await site.token())
            assert site.files.key.read_bytes() == before
            await site.enrol(await site.token(), force=True)
            assert site.files.key.read_bytes() != before

    play(scenario)


def test_an_attempt_that_was_cut_off_goes_on_with_its_key(play: Any) -> None:
    async def scenario(bench: Any) -> None:
        async with opened(bench) as site:
            token = await site.token()
            await site.enrol(token)  # and this host never got the answer: as if both files were not there
            site.files.key.replace(waiting_key(site.files.key))
            site.files.cert.unlink()
            await site.enrol(token)
            assert validity_in(site.files.cert).ends_at_s > site.clock.wall_s()

    play(scenario)


def test_a_renewed_certificate_has_a_new_key_and_the_same_name(play: Any, make: Any) -> None:
    async def scenario(bench: Any) -> None:
        async with opened(bench) as site, bench.server() as server:
            await site.enrol(await site.token())
            old_key, old_cert = site.files.key.read_bytes(), site.files.cert.read_bytes()
            await asyncio.to_thread(renew, f"127.0.0.1:{server.port}", site.files, host=H01, answer_s=10.0)
            assert site.files.key.read_bytes() != old_key
            assert site.files.cert.read_bytes() != old_cert
            uplink = bench.uplink(server.port, tls=tls_of(site.files))
            async with bench.agent(uplink, bench.spool()):
                await make.eventually(lambda: uplink.connected)
            assert site.audit()[-1] == ("renew", "h01", "agent:h01", False)

    play(scenario)


def test_an_agent_that_renews_without_end_is_stopped(play: Any) -> None:
    async def scenario(bench: Any) -> None:
        async with opened(bench) as site, bench.server() as server:
            key, tls = ec.generate_private_key(ec.SECP256R1()), TlsFiles(**bench.tls("agents/h01"))
            async with open_channel(f"127.0.0.1:{server.port}", tls, receive_max_bytes=1 << 20) as line:
                for _ in range(5):
                    await IdentityStub(line).Renew(identity_pb2.RenewRequest(csr=request(key)))
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await IdentityStub(line).Renew(identity_pb2.RenewRequest(csr=request(key)))
            assert "h01 renews too often" in (caught.value.details() or "")
            assert len(site.audit()) == 5

    play(scenario)


def test_an_operator_renews_nothing_and_nobody_renews_for_another(play: Any) -> None:
    async def scenario(bench: Any) -> None:
        async with opened(bench) as site, bench.server() as server:
            for stem, why in (("operators/ann", "this is for the role agent"), ("agents/h02", "for another key or")):
                own = Files(ca=bench.pki / "ca.crt", cert=bench.path / "o.crt", key=bench.path / "o.key")
                own.cert.write_bytes((bench.pki / f"{stem}.crt").read_bytes())
                own.key.touch(mode=0o600)
                own.key.write_bytes((bench.pki / f"{stem}.key").read_bytes())
                with pytest.raises((Refused, UplinkError), match=why):
                    await asyncio.to_thread(renew, f"127.0.0.1:{server.port}", own, host=H01, answer_s=10.0)
                assert own.key.read_bytes() == (bench.pki / f"{stem}.key").read_bytes()
            # What h02 got was a certificate for h02: the name is taken from who asks, not from what he says.
            assert [a[:3] for a in site.audit()] == [("renew", "h02", "agent:h02")]

    play(scenario)


# ── the book ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_refused_attempts_do_not_push_out_who_was_let_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fleetd.uplink.token_book.REFUSED_MAX", 3)
    monkeypatch.setattr("fleetd.uplink.token_book.ATTEMPTS_MAX", 2)
    book = SqliteTokenBook(tmp_path / "book.db")
    for n in range(6):
        for refused in (True, False):
            book.note(Attempt(at_s=float(n), what="enrol", host="h", who="w", refused=refused, why=""))
    kept = [(a.at_s, a.refused) for a in book.attempts(limit=10)]
    assert kept == [(5.0, False), (5.0, True), (4.0, False), (4.0, True), (3.0, True)]


def test_another_programs_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "book.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE theirs (x)")
    with pytest.raises(Exception, match="a database of another program"):
        SqliteTokenBook(path)


def test_tokens_that_wait_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fleetd.ports import TokenRecord  # noqa: PLC0415

    monkeypatch.setattr("fleetd.uplink.token_book.TOKENS_MAX", 2)
    book = SqliteTokenBook(tmp_path / "book.db")
    for n in range(2):
        book.issue(str(n), TokenRecord(host=H01, expires_at_s=100.0), now_s=0.0)
    with pytest.raises(Refused, match="2 tokens wait to be spent"):
        book.issue("2", TokenRecord(host=H01, expires_at_s=100.0), now_s=50.0)
    book.issue("3", TokenRecord(host=H01, expires_at_s=300.0), now_s=100.0)  # by then the others expired
    assert book.spend("0", "k")
    assert not book.spend("0", "other")
    assert not book.spend("unknown", "k")
