"""`fleetd config` and `fleetd completion`: what is printed can be used, and what cannot be used is one line."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fleetd.cli import main
from fleetd.uplink.pki import DevPki, make_dev_pki

NOW_S = 1_790_000_000.0


def fleetd(*words: str) -> Result:
    return CliRunner().invoke(main, words)


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pki") / "dev"
    make_dev_pki(folder, DevPki(hosts=("h1",), operators=("ann",)), now_s=NOW_S)
    return folder


@pytest.mark.parametrize("kind", ["agent", "controller"])
def test_the_example_is_a_configuration(kind: str, tmp_path: Path) -> None:
    made = fleetd("config", "example", kind)
    path = tmp_path / "example.yaml"
    path.write_text(made.stdout)
    checked = fleetd("config", "check", str(path))
    assert (made.exit_code, checked.exit_code) == (0, 0), checked.stderr
    assert checked.stdout == f"{path}: a configuration of the {kind}\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("apiVersion: fleetd/v1\nkind: Agent\nstate_dir: /var/lib/fleetd\nupl", "not valid YAML"),
        ("apiVersion: fleetd/v1\nkind: Controller\nstate_dir: /s\n", "`server` is missing"),
        ("apiVersion: fleetd/v1\nkind: Agents\n", "kind must be `Agent`, not `Agents`"),
        ("apiVersion: fleetd/v1\nkind: Policy\n", "is a Policy: see `fleetd policy --help`"),
        ("state_dir: /s\n", "`apiVersion: fleetd/v1` is missing"),
    ],
)
def test_what_is_none_is_one_line(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    found = fleetd("config", "check", str(path), "--json", "-")
    (line,) = found.stderr.splitlines()
    assert found.exit_code == 2
    assert line.startswith(f"{path}:")
    assert said in line
    assert json.loads(found.stdout) == {
        "schema": "fleetd.config.check/1",
        "file": str(path),
        "exit_code": 2,
        "problems": [line],
    }


def test_a_file_that_is_not_there_is_told_as_such(tmp_path: Path) -> None:
    found = fleetd("config", "check", str(tmp_path / "none.yaml"))
    assert (found.exit_code, found.stderr) == (2, f"{tmp_path / 'none.yaml'}: there is no such file\n")


def controller(tmp_path: Path, pki: Path, **changes: str) -> Path:
    keys = {
        "state_dir": str(tmp_path),
        "policy": "default",
        "ca": str(pki / "ca.crt"),
        "cert": str(pki / "controller.crt"),
        "key": str(pki / "controller.key"),
        **changes,
    }
    path = tmp_path / "controller.yaml"
    path.write_text(
        "apiVersion: fleetd/v1\nkind: Controller\nstate_dir: {state_dir}\npolicy: {policy}\n"
        "server: {{listen: '[::1]:0', ca: {ca}, cert: {cert}, key: {key}}}\n".format(**keys)
    )
    return path


def test_here_looks_at_what_the_file_names(tmp_path: Path, pki: Path) -> None:
    good = fleetd("config", "check", "--here", str(controller(tmp_path, pki)))
    assert (good.exit_code, good.stderr) == (0, "")
    path = controller(tmp_path, pki, state_dir="/no/such/place", policy="/no/policy.yaml", key=str(pki / "ca.key"))
    assert fleetd("config", "check", str(path)).exit_code == 0, "the file itself is right"
    bad = fleetd("config", "check", "--here", str(path))
    place, keys, policy = bad.stderr.splitlines()
    assert bad.exit_code == 1
    assert "/no/such/place: no such directory" in place
    assert "cannot be used together: key values mismatch" in keys
    assert policy == f"{path}: /no/policy.yaml: there is no such file"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_is_given_its_script(shell: str) -> None:
    made = fleetd("completion", shell)
    assert made.exit_code == 0
    assert "_FLEETD_COMPLETE=" + shell in made.stdout


def test_bash_takes_it_and_completes(tmp_path: Path) -> None:
    program = tmp_path / "fleetd"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m fleetd "$@"\n')
    program.chmod(0o755)
    ask = (
        "set -eu; source <(fleetd completion bash); COMP_WORDS=(fleetd config ex); COMP_CWORD=2; "
        '_fleetd_completion fleetd; echo "${COMPREPLY[@]}"'
    )
    environ = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, check=False, env=environ, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "example\n", "")


def test_the_nouns_are_offered_without_importing_them() -> None:
    code = (
        "import sys; from fleetd.cli import main; import click\n"
        "words = [w.value for w in main.shell_complete(click.Context(main), 'co')]\n"
        "print(words, [m for m in sys.modules if m.startswith('fleetd.cli.co')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("] ")[0] == "['completion', 'config', 'controller'"
    assert done.stdout.strip().endswith("[]")


@pytest.mark.parametrize(
    ("kind", "more", "says"),
    [
        ("Agent", "power: {mode: safe, envelope: /no/envelope.yaml}", "/no/envelope.yaml: there is no such file"),
        ("Agent", "power: {mode: boost, envelope: h200, set_point: /no/p.yaml}", "/no/p.yaml: there is no such file"),
        ("Controller", "power: {tree: /no/tree.yaml}", "/no/tree.yaml: there is no such file"),
        ("Controller", "pages: {url: 'https://site.example/p', secret: /no/key}", "/no/key: No such file or directory"),
        ("Controller", "actuator: {kind: kubernetes, token: /no/token}", "/no/token: No such file or directory"),
    ],
)
def test_here_everything_that_is_named_is_opened(kind: str, more: str, says: str, tmp_path: Path) -> None:
    line = "uplink: {insecure: true}" if kind == "Agent" else "server: {insecure: true}"
    path = tmp_path / "some.yaml"
    path.write_text(f"apiVersion: fleetd/v1\nkind: {kind}\nstate_dir: {tmp_path}\n{line}\n{more}\n")
    assert fleetd("config", "check", str(path)).exit_code == 0
    found = fleetd("config", "check", "--here", str(path))
    assert (found.exit_code, found.stderr) == (1, f"{path}: {says}\n")
