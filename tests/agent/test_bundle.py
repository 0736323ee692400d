"""The evidence bundle: what is in it, what is not, and that nothing secret is left."""

import io
import json
import socket
import sqlite3
import sys
import tarfile
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml
import zstandard
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from fleetd.agent import bundle
from fleetd.agent.bundle_pack import PART_BYTES_MAX, PackError, Part, pack
from fleetd.agent.bundle_redact import Redactor
from fleetd.cli.bundle import command
from fleetd.model.finding import DeviceFault, FaultClass, Scope, Severity
from fleetd.model.ids import FindingId
from fleetd.system import entropy, host_name
from fleetd.uplink.spool import SqliteSpool
from tests.agent.fakes_agent import BOOT, HOST

UUID = "GPU-3f1c9e2a-77aa-4b1d-9c55-0123456789ab"
SERIAL = "1323423061234"
CARD = "acme-card-0042"
"""As a vendor of the site's own may call a GPU: nothing tells by its looks that it is one."""
SECRETS = (
    UUID,
    SERIAL,
    CARD,
    "hunter2",
    "node17.cluster.example",
    "10.11.12.13",
    "00:1b:21:aa:bb:cc",
    "s3cr3t-token-value",
)


def fault(why: str, name: str = "first") -> DeviceFault:
    return DeviceFault(
        id=FindingId(name),
        host=HOST,
        boot_id=BOOT,
        at_s=1.7e9,
        why=why,
        code="nvidia.xid.79",
        gpu=None,
        index=None,
        scope=Scope.HOST,
        severity=Severity.FATAL,
        fault_class=FaultClass.UNRESPONSIVE,
    )


def opened(path: Path) -> dict[str, bytes]:
    """The files of a bundle."""
    body = path.read_bytes()
    if path.name.endswith(".zst"):
        body = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(body)).read()
    with tarfile.open(fileobj=io.BytesIO(body)) as tar:
        found: dict[str, bytes] = {}
        for entry in tar:
            file = tar.extractfile(entry)
            assert file is not None
            assert (entry.uid, entry.gid, entry.mode) == (0, 0, 0o600)
            found[entry.name.removeprefix("fleetd-bundle/")] = file.read()
        return found


@pytest.fixture(name="host")
def _host(tmp_path: Path) -> Path:
    """A host with a configuration, a spool, a report and what stands; no agent runs."""
    state = tmp_path / "state"
    (state / "burnin").mkdir(parents=True)
    config: dict[str, Any] = {
        "apiVersion": "fleetd/v1",
        "kind": "Agent",
        "host": "node17.cluster.example",
        "state_dir": str(state),
        "uplink": {"address": "10.11.12.13:7443", "ca": "/etc/ca.pem", "cert": "/etc/c.pem", "key": "/etc/k.pem"},
        "exporter": {"listen": "127.0.0.1:9"},
    }
    (tmp_path / "agent.yaml").write_text(f"# the admin's password: hunter2\n{yaml.safe_dump(config)}")
    spool = SqliteSpool(state / "spool.db", rng=entropy())
    spool.append(fault(f"XID79 on {UUID} of node17.cluster.example, serial number: {SERIAL}"))
    spool.close()
    (state / "standing.json").write_text(
        json.dumps({"faults": [{"why": f"{UUID} password=hunter2"}, {"gpu": CARD, "why": f"{CARD} is lost"}]})
    )
    (state / "burnin" / "ab.json").write_text(
        json.dumps(
            {"gpus": [{"uuid": UUID, "serial": SERIAL}], "mac": "00:1b:21:aa:bb:cc", "token": "s3cr3t-token-value"}
        )
    )
    return tmp_path


def run(host: Path, *options: str) -> Result:
    words = ["--config", str(host / "agent.yaml"), "--socket", str(host / "none.sock"), *options]
    return CliRunner().invoke(command, words)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.0 200 OK\r\n\r\nfleetd_gpu_info 1\n", ""),
        (b"SSH-2.0-OpenSSH_9.9\r\n", "speaks no HTTP"),
        (b"HTTP/1.0 403 Forbidden\r\n\r\n", "answers 403"),
    ],
)
def test_the_metrics_are_asked_of_this_host_and_not_of_a_proxy(
    host: Path, monkeypatch: pytest.MonkeyPatch, answer: bytes, said: str
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with socket.create_server(("127.0.0.1", 0)) as server:
        config = host / "agent.yaml"
        config.write_text(config.read_text().replace("127.0.0.1:9\n", f"127.0.0.1:{server.getsockname()[1]}\n"))

        def serve() -> None:
            with server.accept()[0] as client:
                client.recv(4096)
                client.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        result = run(host, "--out", str(host / "b.tar.gz"), "--json", "-")
        thread.join(10)
    assert result.exit_code == 0, result.output
    assert said in json.loads(result.stdout)["missing"].get("metrics.txt", "")
    assert (opened(host / "b.tar.gz").get("metrics.txt") == b"fleetd_gpu_info 1\n") is (not said)


@pytest.mark.parametrize("suffix", ["tar.zst", "tar.gz"])
def test_a_bundle_of_a_dead_agent_names_what_is_missing_and_holds_no_secret(host: Path, suffix: str) -> None:
    out = host / f"b.{suffix}"
    result = run(host, "--out", str(out), "--json", "-")
    assert result.exit_code == 0, result.output
    manifest = json.loads(result.stdout)
    files = opened(out)
    assert files.keys() == {*manifest["files"], "manifest.json"}
    assert {"config.yaml", "findings.jsonl", "standing.json", "burnin/ab.json", "versions.json"} <= files.keys()
    assert "no agent at" in manifest["missing"]["status.json"]
    assert "metrics.txt" in manifest["missing"]
    assert manifest["agent_answers"] is False
    whole = b"".join(files.values()).decode()
    for secret in (*SECRETS, host_name()):
        assert secret not in whole
    (line,) = files["findings.jsonl"].decode().splitlines()
    pseudonym = json.loads(files["standing.json"])["faults"][0]["why"].split()[0]
    assert pseudonym in json.loads(line)["finding"]["why"], "the same GPU has the same name in every file"
    assert out.stat().st_mode & 0o777 == 0o600


def test_without_redaction_the_serials_are_there(host: Path) -> None:
    assert run(host, "--no-redact", "--out", str(host / "b.tar.gz")).exit_code == 0
    files = opened(host / "b.tar.gz")
    assert SERIAL in files["findings.jsonl"].decode()
    assert json.loads(files["manifest.json"])["redacted"] is False
    assert b"hunter2" not in files["config.yaml"], "comments are never taken along"


def test_the_findings_are_read_while_the_agent_has_the_spool_to_itself(host: Path) -> None:
    spool = SqliteSpool(host / "state" / "spool.db", rng=entropy())
    try:
        spool.append(fault("in the log of the database only", "second"))
        assert run(host, "--out", str(host / "b.tar.gz")).exit_code == 0
    finally:
        spool.close()
    lines = opened(host / "b.tar.gz")["findings.jsonl"].decode().splitlines()
    assert [json.loads(line)["seq"] for line in lines] == [1, 2]


def test_a_broken_host_still_gives_a_bundle(tmp_path: Path) -> None:
    (tmp_path / "agent.yaml").write_text("kind: [\n")
    (tmp_path / "spool.db").write_bytes(b"no database")
    result = run(tmp_path, "--out", str(tmp_path / "b.tar.gz"))
    assert result.exit_code == 0
    assert "missing: config.yaml: it is no YAML" in result.output
    assert "versions.json" in opened(tmp_path / "b.tar.gz")
    with pytest.raises(sqlite3.Error):
        bundle.spooled(tmp_path)


def test_a_configuration_that_is_not_there_is_a_mistyped_path(tmp_path: Path) -> None:
    result = run(tmp_path, "--out", str(tmp_path / "b.tar.gz"))
    assert (result.exit_code, result.output.count("\n")) == (2, 1)
    assert f"{tmp_path / 'agent.yaml'}: no such file" in result.output
    assert not (tmp_path / "b.tar.gz").exists()


@pytest.mark.parametrize(
    ("name", "says"), [("b.zip", "it ends in .tar.zst or .tar.gz"), ("none/b.tar.gz", "cannot write")]
)
def test_a_bundle_that_cannot_be_written_is_one_line_and_exit_code_2(host: Path, name: str, says: str) -> None:
    result = run(host, "--out", str(host / name))
    assert (result.exit_code, result.output.count("\n")) == (2, 1)
    assert says in result.output


def test_without_zstandard_zst_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(PackError, match=r"pip install 'fleetd\[bundle\]', or write a \.tar\.gz"):
        pack([], tmp_path / "b.tar.zst", at_s=0.0, about={})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suffix", ["tar.zst", "tar.gz"])
def test_the_same_evidence_gives_the_same_bytes_and_is_bounded(tmp_path: Path, suffix: str) -> None:
    parts = [
        Part(name="log", text="old\n" + "x" * PART_BYTES_MAX),
        Part(name="a", text="1"),
        Part(name="b", missing="no"),
    ]
    bodies = []
    for order in (parts, parts[::-1]):
        manifest = pack(order, tmp_path / f"b.{suffix}", at_s=1.7e9, about={})
        bodies.append((tmp_path / f"b.{suffix}").read_bytes())
    assert bodies[0] == bodies[1]
    assert manifest["files"]["log"]["cut_bytes"] == 4
    assert len(opened(tmp_path / f"b.{suffix}")["log"]) == PART_BYTES_MAX


# ── redaction ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("url: https://joe:pw@h.example/x", "url: https://[secret]@h.example/x"),
        ("Authorization: Bearer abcdefgh.ijkl", "Authorization: Bearer [secret]"),
        ('{"api_key": "a b", "n": 1}', '{"api_key": "[secret]", "n": 1}'),
        ('{"why": "password=x"}', '{"why": "password=[secret]"}'),
        ("DB_PASSWORD=x;y", "DB_PASSWORD=[secret];y"),
        ("-----BEGIN PRIVATE KEY-----\nMII\n-----END PRIVATE KEY-----\nx", "[secret]\nx"),
        ("-----BEGIN PRIVATE KEY-----\nMII", "[secret]"),
        ("peer fe80::1ff:fe23:4567 and 10.1.2.3.", "peer [ip-2] and [ip-1]."),
        ("listens on 127.0.0.1:9466", "listens on 127.0.0.1:9466"),
        ("board_serial: 0123X", "board_serial: [serial-1]"),
        ("Serial Number                         : 165012", "Serial Number                         : [serial-1]"),
        ("NVRM: Xid (PCI:0000:0b:00): 79", "NVRM: Xid (PCI:0000:0b:00): 79"),
        ("vBIOS 96.00.89.00.01, driver 580.159.03", "vBIOS 96.00.89.00.01, driver 580.159.03"),
        ("at 2026-11-30T08:30:40.646429Z std::string", "at 2026-11-30T08:30:40.646429Z std::string"),
        ("serial console on ttyS0", "serial console on ttyS0"),
        ("a@b.example wrote", "[mail-1] wrote"),
        ("ran `x --password hunter2 --token=t -v`", "ran `x --password [secret] --token=[secret] -v`"),
        ("x --token --verbose", "x --token --verbose"),
        ("psk=a pwd: b AWS_ACCESS_KEY_ID=c", "psk=[secret] pwd: [secret] AWS_ACCESS_KEY_ID=[secret]"),
        ("got eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc-_9, bad", "got [secret], bad"),
        (
            'job{gpu="1",job_id="77",user="ann",account="phys",pod="p\\"q",container=""} 1',
            'job{gpu="1",job_id="77",user="[user-1]",account="[account-1]",pod="[pod-1]",container=""} 1',
        ),
    ],
)
def test_secrets_and_names_go_and_evidence_stays(text: str, after: str) -> None:
    assert Redactor().text(text) == after


def test_known_names_go_wherever_they_stand_as_words() -> None:
    redactor = Redactor([("host", "a"), ("host", ""), ("gpu", "GPU-0"), ("host", "a.example")])
    assert (
        redactor.text("a has GPU-0, not GPU-01: a.example/a") == "[host-1] has [gpu-1], not GPU-01: [host-2]/[host-1]"
    )


def test_a_host_is_told_however_it_is_written_and_its_domain_goes_with_it() -> None:
    redactor = Redactor([("host", "node17"), ("gpu", "card-1")])
    text = redactor.text("NODE17, node17.site.example: card-1.power on node17. Node170 is another.")
    assert text == "[host-1], [host-1]: [gpu-1].power on [host-1]. Node170 is another."


@given(
    st.sampled_from([UUID, "10.11.12.13", "00:1b:21:aa:bb:cc"]),
    st.text(alphabet=" \n\t,;=()[]{}\"'/", max_size=8),
    st.text(alphabet=" \n\t,;=()[]{}\"'/", max_size=8),
)
def test_no_surrounding_hides_a_name(name: str, before: str, behind: str) -> None:
    assert name not in Redactor().text(f"x {before}{name}{behind} y")
