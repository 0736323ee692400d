"""A user's mistake: one line that says what, where and what to do; the documented exit code; no traceback."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml


def fleetd(*words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "fleetd", *words]
    env = {key: value for key, value in os.environ.items() if not key.startswith("FLEETD_")}  # as README exports them
    return subprocess.run(command, capture_output=True, text=True, timeout=200, check=False, cwd=cwd, env=env)


def one_line(result: subprocess.CompletedProcess[str], exit_code: int) -> str:
    assert result.returncode == exit_code, result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    return line


def write(path: Path, body: dict[str, object]) -> Path:
    path.write_text(yaml.safe_dump(body, sort_keys=False))
    return path


def controller(tmp_path: Path, **changes: object) -> dict[str, object]:
    state = tmp_path / "state"
    state.mkdir(exist_ok=True)
    return {
        "apiVersion": "fleetd/v1",
        "kind": "Controller",
        "state_dir": str(state),
        "server": {"listen": "127.0.0.1:0", "insecure": True},
        "exporter": {"listen": "127.0.0.1:0"},
        **changes,
    }


def agent(tmp_path: Path, **changes: object) -> dict[str, object]:
    state = tmp_path / "state"
    state.mkdir(exist_ok=True)
    return {
        "apiVersion": "fleetd/v1",
        "kind": "Agent",
        "state_dir": str(state),
        "devices": {"backend": "sim"},
        "uplink": {"address": "127.0.0.1:1", "insecure": True},
        "exporter": {"listen": "127.0.0.1:0"},
        **changes,
    }


@pytest.mark.parametrize("noun", ["agent", "controller"])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("apiVersion: fleetd/v1\nkind: {Kind}\nstate_dirr: /x\n", ":3: unknown key `state_dirr`"),
        ("apiVersion: fleetd/v1\nkind: {Kind}\nstate_dir: /x\nstate_dir: /y\n", ":4: "),
        ("apiVersion: fleetd/v1\nkind: Banana\n", ":2: "),
        ("", "empty"),
        ("just words", "expected a mapping"),
    ],
)
def test_a_bad_configuration_is_pointed_at(tmp_path: Path, noun: str, text: str, said: str) -> None:
    path = tmp_path / "fleetd.yaml"
    path.write_text(text.replace("{Kind}", noun.capitalize()))
    assert said in one_line(fleetd(noun, "--config", str(path)), 2)


@pytest.mark.parametrize("noun", ["agent", "controller"])
def test_a_missing_configuration_is_named(tmp_path: Path, noun: str) -> None:
    line = one_line(fleetd(noun, "--config", str(tmp_path / "nowhere.yaml")), 2)
    assert "nowhere.yaml" in line


@pytest.mark.parametrize("noun", ["agent", "controller"])
def test_a_missing_state_directory_is_named(tmp_path: Path, noun: str) -> None:
    body = (agent if noun == "agent" else controller)(tmp_path, state_dir=str(tmp_path / "nowhere"))
    line = one_line(fleetd(noun, "--config", str(write(tmp_path / "c.yaml", body))), 1)
    assert "nowhere: no such directory; make it" in line


@pytest.mark.parametrize("what", ["server", "exporter"])
def test_a_port_in_use_is_said(tmp_path: Path, what: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        part: dict[str, object] = {"listen": address, "insecure": True} if what == "server" else {"listen": address}
        body = controller(tmp_path, **{what: part})
        result = fleetd("controller", "--config", str(write(tmp_path / "c.yaml", body)))
    assert result.returncode == 1, "whoever has it may end: a service manager tries again"
    assert "Traceback" not in result.stderr
    assert f"{address}: Address already in use" in result.stderr.splitlines()[-1]


def test_plain_text_beyond_loopback_is_refused(tmp_path: Path) -> None:
    body = controller(tmp_path, server={"listen": "0.0.0.0:0", "insecure": True})
    assert "loopback" in one_line(fleetd("controller", "--config", str(write(tmp_path / "c.yaml", body))), 2)


def test_a_simulated_burnin_is_no_proof_for_a_real_host(tmp_path: Path) -> None:
    body = agent(tmp_path, devices={"backend": "nvidia"}, burner={"backend": "sim"})
    line = one_line(fleetd("agent", "--config", str(write(tmp_path / "c.yaml", body))), 2)
    assert "proves nothing" in line


def test_a_policy_that_is_not_there_is_named(tmp_path: Path) -> None:
    body = controller(tmp_path, policy="no-such-policy.yaml")
    line = one_line(fleetd("controller", "--config", str(write(tmp_path / "c.yaml", body))), 2)
    assert "no-such-policy.yaml" in line


def test_an_unreachable_controller_is_said_with_what_to_do() -> None:
    line = one_line(fleetd("host", "list", "--controller", "127.0.0.1:1", "--insecure"), 3)
    assert "127.0.0.1:1" in line


def test_missing_certificates_are_said() -> None:
    line = one_line(fleetd("host", "list", "--controller", "127.0.0.1:1"), 2)
    assert "fleetd pki dev" in line


def test_an_unknown_noun_is_a_usage_error() -> None:
    result = fleetd("hosts")
    assert result.returncode == 2
    assert "No such command 'hosts'" in result.stderr


def test_burnin_hands_over_to_the_package_that_has_torch() -> None:
    result = fleetd("burnin", "run", "--level", "nope")
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
    assert "nope" in result.stderr


def test_burnin_runs_nothing_from_the_directory_where_somebody_happens_to_stand(tmp_path: Path) -> None:
    for name in ("burnin.py", "click.py"):
        (tmp_path / name).write_text("raise SystemExit('a stranger ran')")
    result = fleetd("burnin", "list", cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert "gemm.exact" in result.stdout


def test_standard_output_on_a_full_disk_is_no_verdict(tmp_path: Path) -> None:
    policy = Path(__file__).parents[2] / "policies" / "default.yaml"
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-P", "-m", "fleetd", "policy", "check", str(policy)]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, len(done.stderr.splitlines())) == (3, 1)
    assert "standard output cannot be written" in done.stderr


def test_what_a_terminal_has_no_sign_for_is_written_out(tmp_path: Path) -> None:
    code = """
import click, fleetd.cli
from fleetd.cli import tables
def callback():
    tables.show("why: caf\\xe9 \\U0001f600")
fleetd.cli._Nouns.get_command = lambda *_: click.Command("noun", callback=callback)
fleetd.cli.main(["noun"])
"""
    command = [sys.executable, "-P", "-c", code]
    latin = {**os.environ, "PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"}
    done = subprocess.run(command, capture_output=True, timeout=200, check=False, cwd=tmp_path, env=latin)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, b"why: caf\xe9 \\U0001f600", b"")


def test_what_a_failure_quotes_does_not_steer_the_terminal() -> None:
    assert one_line(fleetd("store", "check", "--ledger", "/none/\x1b[31m\udcff"), 2).isprintable()


@pytest.mark.parametrize(
    ("body", "says"), [("1 / 0", "ZeroDivisionError: division by zero"), ("raise KeyboardInterrupt", "fleetd: stopped")]
)
def test_what_nobody_foresaw_and_a_stop_by_hand_are_no_verdict(body: str, says: str) -> None:
    code = f"""
import click, fleetd.cli
def callback():
    print("so far")
    {body}
fleetd.cli._Nouns.get_command = lambda *_: click.Command("noun", callback=callback)
fleetd.cli.main(["noun"])
"""
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=200, check=False)
    assert (done.returncode, done.stdout) == (3, "so far\n")
    assert done.stderr.splitlines()[-1] == says


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"host": ""}, "is no host name"),
        ({"host": "a\nb"}, "is no host name"),
        ({"host": "../x"}, "is no host name"),
        ({"place": {"rack": "a\tb"}}, "place: rack: "),
        ({"place": {"rack": ""}}, "place: rack: "),
        ({"devices": "many\nlines"}, "expected a mapping"),
        ({"devices": {"backend": "x" * 5000}}, "is none of nvidia, amd, sim"),
        ({"burner": {"seed": -1}}, "seed: -1 is not from 0"),
    ],
)
def test_what_a_file_says_is_quoted_in_one_short_line(tmp_path: Path, changes: dict[str, object], words: str) -> None:
    config = write(tmp_path / "agent.yaml", agent(tmp_path, **changes))
    line = one_line(fleetd("agent", "--config", str(config)), 2)
    assert words in line
    assert len(line) < 400 + len(str(tmp_path))


@pytest.mark.parametrize(
    ("noun", "package", "extra"),
    [
        ("controller", "sqlalchemy", "controller"),
        ("rehearse", "sqlalchemy", "controller"),
        ("demo", "cryptography", "controller"),
        ("pki", "cryptography", "controller"),
    ],
)
def test_what_is_not_installed_is_named_with_its_extra(tmp_path: Path, noun: str, package: str, extra: str) -> None:
    words = [noun, "dev", str(tmp_path / "pki")] if noun == "pki" else [noun]
    code = (
        f"import sys; sys.modules[{package!r}] = None; from fleetd.cli import main; main({words}, prog_name='fleetd')"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200, check=False)
    line = one_line(result, 2)
    assert package in line
    assert f"pip install 'fleetd[{extra}]'" in line


def test_help_lists_every_noun_on_an_agents_installation() -> None:
    blocked = "for name in ('sqlalchemy', 'cryptography', 'torch', 'numpy'): sys.modules[name] = None"
    code = f"import sys\n{blocked}\nfrom fleetd.cli import main; main(['--help'])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200, check=False)
    assert result.returncode == 0, result.stderr
    assert "controller" in result.stdout
    assert "Not installed" in result.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["demo", "--world", "3", "--seed", "-1"], "demo: Invalid value for '--seed': -1 is not in the range x>=0"),
        (["demo", "--world", "0"], "'--world': 0 is not in the range"),
        (["demo", "--seconds", "1"], "'--seconds': 1 is not in the range"),
        (["rehearse", "--policy", "default", "--journal", "x", "--limit", "-1"], "'--limit': -1 is not in the range"),
        (["rehearse", "--policy", "default"], "rehearse: Missing option '--journal'"),
        (["host", "quarantine", "h", "--reason", "r", "--expires-in", "-1"], "host quarantine: Invalid value"),
        (["policy", "check"], "policy check: Missing argument 'FILE'"),
        (["policy", "chek", "x"], "No such command 'chek'"),
        (["hosts"], "No such command 'hosts'"),
        (["--colour"], "No such option '--colour'"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_line_that_says_where_help_is(words: list[str], said: str) -> None:
    line = one_line(fleetd(*words), 2)
    assert line.startswith("fleetd: ")
    assert said in line
    assert line.endswith("--help`")


def test_a_noun_alone_shows_its_help() -> None:
    result = fleetd("policy")
    assert result.returncode == 2
    assert "Look at a policy before a fleet runs on it." in result.stderr


POLICY_WITH_A_TYPO = """\
apiVersion: fleetd/v1
kind: Policy
qualify: {level: smoke, timeout_seconds: 100, attempts: 3}
proofs: {}
budgets:
  quarantines: {max_ratio: 0.5, at_least: 1, max_in_window: 10, window_seconds: 1000}
rules:
  - name: typo
    when:
      code: nvidia.xxid.79
    then: notify
"""


def test_a_rule_for_a_code_that_nothing_reports_is_found_unless_the_site_knows_it(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(POLICY_WITH_A_TYPO)
    line = one_line(fleetd("policy", "check", str(path)), 1)
    assert line.startswith(f"{path}:10: rule `typo` can never match: nothing reports the code `nvidia.xxid.79`")
    assert line.endswith("did you mean `nvidia.xid.79`?")
    path.write_text(POLICY_WITH_A_TYPO.replace("nvidia.xxid.79", "agent.driver_unresponsive"))
    assert fleetd("policy", "check", str(path)).returncode == 0


def test_a_budget_of_0_is_pointed_at_and_can_be_rehearsed(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    rules = POLICY_WITH_A_TYPO.replace("nvidia.xxid.79", "nvidia.xid.79")
    path.write_text(rules.replace("max_in_window: 10", "max_in_window: 0"))
    line = one_line(fleetd("policy", "check", str(path)), 1)
    assert line == f"{path}:6: a budget of 0 withholds every quarantine"
