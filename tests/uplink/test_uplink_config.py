"""Addresses, files and identities: what cannot work is said before anything is opened."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fleetd.cli import main
from fleetd.ports import Peer, Refused, UplinkError
from fleetd.uplink.config import DeskConfig, ServerConfig, UplinkConfig, split_address
from fleetd.uplink.pki import DevPki, make_dev_pki
from fleetd.uplink.tls import identity, peer_of

TLS = {"ca": "ca.crt", "cert": "a.crt", "key": "a.key"}


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("127.0.0.1:7443", ("127.0.0.1", 7443)),
        ("[::1]:0", ("::1", 0)),
        ("ctl-1.example.org:65535", ("ctl-1.example.org", 65535)),
    ],
)
def test_addresses(text: str, parts: tuple[str, int]) -> None:
    assert split_address(text, where="listen") == parts


@pytest.mark.parametrize(
    "text",
    ["", ":7443", "host", "host:", "host:70000", "host:-1", "::1:7443", "unix:/run/x", "dns:///a:1", "a,b:1", "a b:1"],
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(UplinkError, match=r"listen: .* is no address, write HOST:PORT"):
        split_address(text, where="listen")


@pytest.mark.parametrize("config", [UplinkConfig, ServerConfig])
@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({}, "ca, cert, key missing; `fleetd pki dev DIR` makes"),
        ({"ca": "ca.crt"}, "cert, key missing"),
        ({"insecure": True, "ca": "ca.crt"}, "`insecure` and ca exclude each other"),
    ],
)
def test_half_a_configuration_is_refused(config: Any, options: dict[str, Any], line: str) -> None:
    with pytest.raises(ValueError, match=line):
        config(**options)


@pytest.mark.parametrize("address", ["10.0.0.1:7443", "0.0.0.0:7443", "[::]:7443", "localhost.evil.org:7443"])
def test_plain_text_stays_on_this_host(address: str) -> None:
    with pytest.raises(ValueError, match="is not on this host, and `insecure` is for the loopback only"):
        UplinkConfig(address=address, insecure=True)
    with pytest.raises(ValueError, match="is not on this host"):
        ServerConfig(listen=address, insecure=True)
    with pytest.raises(UplinkError, match="is not on this host"):
        _ = DeskConfig(address=address, insecure=True).tls


@pytest.mark.parametrize("address", ["localhost:1", "127.8.9.1:1", "[::1]:1"])
def test_the_loopback_may_do_without_tls(address: str) -> None:
    assert UplinkConfig(address=address, insecure=True).tls is None


def test_numbers_must_make_sense() -> None:
    with pytest.raises(ValueError, match=r"retry_first_seconds: 0 is not above 0"):
        UplinkConfig(**TLS, retry_first_seconds=0)
    with pytest.raises(ValueError, match=r"agents_max: -1 is not above 0"):
        ServerConfig(**TLS, agents_max=-1)


def test_a_certificate_names_one_peer() -> None:
    def peer(*uris: bytes) -> Peer:
        return peer_of({"peer_uri": uris})

    assert peer(b"fleetd://agent/h01.rack-2") == Peer(name="h01.rack-2", role="agent")
    assert peer(b"spiffe://site/x", b"fleetd://viewer/eve") == Peer(name="eve", role="viewer")
    for uris in (
        (),
        (b"spiffe://site/x",),
        (b"fleetd://agent/h01", b"fleetd://operator/ann"),
        (b"fleetd://root/h01",),
        (b"fleetd://agent/",),
        (b"fleetd://agent/h01/x",),
        (b"fleetd://agent/h01\n",),
        (b"FLEETD://agent/h01",),
    ):
        with pytest.raises(Refused, match="the certificate must name one peer"):
            peer(*uris)
    with pytest.raises(UplinkError, match=r"agent '\.\./x': a name has"):
        identity("agent", "../x")


def test_pki_dev_makes_everything_or_nothing(tmp_path: Path) -> None:
    where = tmp_path / "pki"
    runner = CliRunner()
    arguments = ["pki", "dev", str(where), "--host", "h01", "--host", "h02", "--san", "ctl.example.org"]
    made = runner.invoke(main, arguments)
    assert (made.exit_code, made.stderr) == (0, "")
    assert len(made.stdout.splitlines()) == 1
    files = {str(path.relative_to(where)): path.stat().st_mode & 0o777 for path in where.rglob("*.*")}
    stems = ["ca", "controller", "agents/h01", "agents/h02", "operators/operator"]
    assert files == {f"{stem}{end}": mode for stem in stems for end, mode in ((".crt", 0o644), (".key", 0o600))}
    before = {path: path.read_bytes() for path in where.rglob("*.*")}
    again = runner.invoke(main, arguments)
    assert (again.exit_code, again.stderr) == (
        2,
        f"fleetd: {where} exists already: name a new directory, nothing in it was changed\n",
    )
    assert {path: path.read_bytes() for path in where.rglob("*.*")} == before
    for bad in (["--host", "../x"], ["--operator", ""], ["--san", "a b"]):
        refused = runner.invoke(main, ["pki", "dev", str(tmp_path / "other"), *bad])
        assert (refused.exit_code, "a name has 1 to 253" in refused.stderr) == (2, True)
    assert [path.name for path in tmp_path.iterdir()] == ["pki"]


def test_pki_fills_an_empty_directory_and_no_other(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    wanted = DevPki(hosts=("h01",), operators=())
    make_dev_pki(tmp_path / "empty", wanted, now_s=1.7e9)
    assert (tmp_path / "empty" / "agents" / "h01.key").exists()
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UplinkError, match="exists already"):
        make_dev_pki(tmp_path / "file", wanted, now_s=1.7e9)
    assert (tmp_path / "file").read_text() == "mine"


def test_without_cryptography_it_says_what_to_install(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['cryptography'] = None\n"
        f"sys.argv = ['fleetd', 'pki', 'dev', {str(tmp_path / 'pki')!r}]\n"
        "from fleetd.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    line = "fleetd: making certificates needs `cryptography`: pip install 'fleetd[controller]'\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", line)


def test_reading_a_configuration_does_not_load_grpc() -> None:
    code = "import sys; import fleetd.uplink.config; sys.exit('grpc' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_slowest_return_is_to_see_the_dead_line_the_longest_wait_and_the_answer() -> None:
    assert UplinkConfig(insecure=True).slowest_return_seconds == 30 + 10 + 60 + 2 * 10
    slow = UplinkConfig(insecure=True, retry_max_seconds=300.0, answer_seconds=5.0)
    assert slow.slowest_return_seconds == 30 + 10 + 300 + 2 * 5
