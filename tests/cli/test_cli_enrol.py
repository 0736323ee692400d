"""From the two machines' command lines: a token here, a certificate there, and what a mistake says."""

import json
import re
import select
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from fleetd.cli import main
from fleetd.model.ids import HostName
from fleetd.system import RealClock
from fleetd.uplink.authority import FileAuthority
from fleetd.uplink.certificate import common_name
from fleetd.uplink.key_files import waiting_key
from fleetd.uplink.pki import DevPki, make_dev_pki
from fleetd.uplink.validity import validity_in

WAIT_S = 60.0
"""A process that does not start in this time has failed."""


@dataclass
class Site:
    """A controller that runs, its file, and the file of an agent."""

    controller: Path
    agent: Path
    address: str
    enrolment: str
    pki: Path

    def run(self, *words: str, stdin: str = "", person: str | None = "operators/me") -> Result:
        environ = {"FLEETD_CONTROLLER": self.address, "FLEETD_CA": str(self.pki / "ca.crt")}
        if person is not None:
            stem = self.pki / person
            environ |= {"FLEETD_CERT": f"{stem}.crt", "FLEETD_KEY": f"{stem}.key"}
        return CliRunner().invoke(main, words, input=stdin, env=environ)

    def enrol(self, token: str, *words: str) -> Result:
        return self.run(
            *("agent", "enrol", "--config", str(self.agent), "--controller", self.enrolment, *words), stdin=token
        )


def written(path: Path, **document: object) -> Path:
    path.write_text(yaml.safe_dump({"apiVersion": "fleetd/v1", **document}))
    return path


@pytest.fixture(name="site", scope="module")
def _site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    pki = folder / "pki"
    make_dev_pki(pki, DevPki(hosts=("other",), operators=("me",), viewers=("eve",)), now_s=RealClock().wall_s())
    tls = {"ca": str(pki / "ca.crt"), "cert": str(pki / "controller.crt"), "key": str(pki / "controller.key")}
    controller = written(
        folder / "controller.yaml",
        kind="Controller",
        state_dir=str(folder),
        server={"listen": "127.0.0.1:0", **tls},
        enrolment={"ca": tls["ca"], "ca_key": str(pki / "ca.key"), "listen": "127.0.0.1:0"},
        exporter={"listen": "127.0.0.1:0"},
    )
    log = folder / "log"
    with log.open("w") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", "fleetd", "controller", "--config", str(controller)], stderr=stream
        )
    try:
        names = ("listening", "enrolment_listening")
        ports = {name: int(said(log, process, name)["port"]) for name in names}
        own = {"cert": str(folder / "own/agent.crt"), "key": str(folder / "own/agent.key"), "renew": True}
        agent = written(
            folder / "agent.yaml",
            kind="Agent",
            state_dir=str(folder),
            host="gpu-001",
            devices={"backend": "sim", "gpus": 1},
            status={"socket": str(folder / "agent.sock")},
            exporter={"listen": "127.0.0.1:0"},
            uplink={"address": f"127.0.0.1:{ports['listening']}", "ca": tls["ca"], **own},
        )
        enrolment = f"127.0.0.1:{ports['enrolment_listening']}"
        yield Site(controller, agent, f"127.0.0.1:{ports['listening']}", enrolment, pki)
    finally:
        process.terminate()
        process.wait(WAIT_S)


def said(log: Path, process: "subprocess.Popen[bytes]", *events: str) -> dict[str, Any]:
    """The line of a log about the last of these events that come after each other, as soon as it is there."""
    until_s = RealClock().elapsed_s() + WAIT_S
    while RealClock().elapsed_s() < until_s and process.poll() is None:
        lines = [json.loads(line) for line in log.read_text().splitlines(keepends=True) if line.endswith("}\n")]
        left = list(events)
        for line in lines:
            if line["event"] == left[0]:
                left.pop(0)
            if not left:
                return dict(line)
        select.select([], [], [], 0.02)
    raise AssertionError(log.read_text())


def test_a_host_is_enrolled_by_an_operator_from_afar(site: Site) -> None:
    made = site.run("pki", "token", "gpu-001", "--reason", "new rack")
    assert made.exit_code == 0, made.output
    assert re.fullmatch(r"[A-Za-z0-9_-]{43}\n", made.stdout)
    assert "for gpu-001, until " in made.stderr
    wrong = site.enrol(made.stdout, "--host", "gpu-002")
    assert (wrong.exit_code, "the token is for another host than gpu-002" in wrong.stderr) == (1, True)
    enrolled = site.enrol(made.stdout)
    assert (enrolled.exit_code, "gpu-001 has a certificate until" in enrolled.stdout) == (0, True), enrolled.output
    again = site.enrol(made.stdout)
    assert (again.exit_code, "counts for 30.0 days more: use --force" in again.stderr) == (1, True)
    spent = site.enrol(made.stdout, "--force")
    assert (spent.exit_code, "was spent already" in spent.stderr) == (1, True)
    assert len(made.stdout.split()) == 1
    for result in (wrong, again, spent):
        assert len(result.stderr.splitlines()) == 1


def test_an_agent_renews_what_is_due_and_connects_anew(site: Site, tmp_path: Path) -> None:
    """The whole of it, in processes of their own; the certificate is one that has a quarter of an hour left."""
    document = yaml.safe_load(site.agent.read_text())
    folder = tmp_path / "own"
    folder.mkdir()
    cert, key = folder / "agent.crt", folder / "agent.key"
    document |= {"host": "gpu-005", "state_dir": str(tmp_path), "status": {"socket": str(tmp_path / "agent.sock")}}
    document["uplink"] |= {"cert": str(cert), "key": str(key)}
    config = tmp_path / "agent.yaml"
    config.write_text(yaml.safe_dump(document))
    made = ec.generate_private_key(ec.SECP256R1())
    key.touch(mode=0o600)
    key.write_bytes(made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    csr = x509.CertificateSigningRequestBuilder().subject_name(common_name("x")).sign(made, hashes.SHA256())
    ca, ca_key = site.pki / "ca.crt", site.pki / "ca.key"
    signer = FileAuthority(ca, ca_key, trusted=ca, life_s=2 * 3600.0)
    asked = signer.read(csr.public_bytes(Encoding.PEM).decode())
    chain, old = signer.sign(HostName("gpu-005"), asked, now_s=RealClock().wall_s() - 1.75 * 3600.0)
    cert.write_text(chain)
    log = tmp_path / "log"
    with log.open("w") as stream:
        words = [sys.executable, "-m", "fleetd", "agent", "--config", str(config)]
        agent = subprocess.Popen(words, stderr=stream)
    try:
        said(log, agent, "certificate_renewed", "uplink_connected")
    finally:
        agent.terminate()
        agent.wait(WAIT_S)
    assert validity_in(cert).ends_at_s > old.ends_at_s + 86400
    assert not waiting_key(key).exists()


def test_and_by_hand_on_the_controllers_machine_where_the_audit_is(site: Site, tmp_path: Path) -> None:
    made = site.run("pki", "token", "gpu-009", "--reason", "by hand", "--config", str(site.controller), person=None)
    assert re.fullmatch(r"[A-Za-z0-9_-]{43}\n", made.stdout), made.output
    own = ("--cert", str(tmp_path / "c/a.crt"), "--key", str(tmp_path / "c/a.key"), "--host", "gpu-009")
    token = tmp_path / "token"
    token.write_text(made.stdout)
    enrolled = site.enrol("", *own, "--token", str(token))
    assert enrolled.exit_code == 0, enrolled.output
    audit = site.run("pki", "log", "--config", str(site.controller), "--json", "-", person=None)
    rows = [row for row in json.loads(audit.stdout)["attempts"] if row["host"] == "gpu-009"]
    assert [(row["what"], row["refused"]) for row in rows] == [("enrol", False), ("token", False)]
    assert rows[1]["who"].endswith("@controller")
    assert rows[1]["why"] == "by hand"
    shown = site.run("pki", "log", "--config", str(site.controller), "--limit", "1", person=None)
    assert " gpu-009 by 127.0.0.1: the token is good" in shown.stdout
    assert made.stdout.strip() not in shown.stdout + audit.stdout


def test_mistakes_are_one_line_with_their_exit_code(site: Site, tmp_path: Path) -> None:
    plain = written(
        tmp_path / "plain.yaml",
        kind="Controller",
        state_dir=str(tmp_path),
        server={"listen": "127.0.0.1:0", "insecure": True},
    )
    foreign = tmp_path / "ca.crt"
    foreign.write_text("nothing")
    files = ("--cert", str(tmp_path / "a.crt"), "--key", str(tmp_path / "a.key"), "--host", "h01")
    for result, exit_code, why in (
        (site.run("pki", "token", "h01", "--reason", "r", "--config", str(plain)), 1, "signs no certificates"),
        (site.run("pki", "log", "--config", str(plain)), 1, "signs no certificates"),
        (site.run("pki", "token", "h01", "--reason", "r", "--config", str(tmp_path / "no")), 2, "no such file"),
        (site.run("pki", "token", "a b", "--reason", "r", "--config", str(site.controller)), 2, "letters, digits"),
        (site.run("pki", "token", "h01", "--reason", " "), 1, "a token needs a reason"),
        (site.run("pki", "token", "h01", "--reason", "r", person="viewers/eve"), 1, "has the role viewer"),
        (site.run("agent", "enrol", "--controller", site.enrolment, stdin="x"), 2, "name the agent's file"),
        (site.enrol("", *files), 2, "standard input holds no token"),
        (site.enrol("é", *files), 2, "standard input holds no token"),
        (site.enrol("", "--token", str(tmp_path / "none"), *files), 2, "cannot read"),
        (site.enrol("x", *files[:3], files[1], *files[4:]), 2, "need a file each"),
        (site.enrol("x", *files, "--ca", str(foreign)), 3, "is no PEM file"),
        (site.enrol("x", *files), 1, "no such token is known"),
        (site.enrol("x", *files, "--controller", "127.0.0.1:1"), 3, "cannot reach the controller"),
        (site.enrol("x", *files[:5], "a b"), 3, "letters, digits"),
    ):
        assert (result.exit_code, why in result.stderr) == (exit_code, True), result.output
        assert (len(result.stderr.splitlines()), result.stdout) == (1, ""), result.output


def test_enrolment_without_tls_is_refused_when_the_file_is_read(tmp_path: Path) -> None:
    document = {
        "state_dir": str(tmp_path),
        "server": {"listen": "127.0.0.1:0", "insecure": True},
        "enrolment": {"ca": "ca.crt", "ca_key": "ca.key"},
    }
    path = written(tmp_path / "controller.yaml", kind="Controller", **document)
    result = CliRunner().invoke(main, ["controller", "--config", str(path)])
    assert (result.exit_code, "enrolment: it needs a server with TLS" in result.stderr) == (2, True)
    document["enrolment"] |= {"certificate_seconds": 60.0}  # type: ignore[operator]
    path = written(tmp_path / "short.yaml", kind="Controller", **document)
    result = CliRunner().invoke(main, ["controller", "--config", str(path)])
    assert (result.exit_code, "certificate_seconds: 60 is below 600" in result.stderr) == (2, True)
