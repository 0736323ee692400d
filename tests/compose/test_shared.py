"""A controller whose ledger is in PostgreSQL: how it starts, and how it says that it cannot."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from fleetd.config.files import load_controller
from fleetd.config.strict import ConfigError
from fleetd.loopback import free_ports
from tests.postgres import Cluster


def configured(folder: Path, store: str) -> Path:
    body = {
        "apiVersion": "fleetd/v1",
        "kind": "Controller",
        "state_dir": str(folder),
        "store": store,
        "server": {"listen": "127.0.0.1:0", "insecure": True},
        "exporter": {"listen": "127.0.0.1:0"},
    }
    path = folder / "controller.yaml"
    path.write_text(yaml.safe_dump(body, sort_keys=False))
    return path


def started(path: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "fleetd", "controller", "--config", str(path)],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def test_what_is_no_place_for_a_ledger_is_told_at_its_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"controller\.yaml:4: store: has a password in it") as refused:
        load_controller(configured(tmp_path, "postgresql://fleetd:s3cret@db/fleet"))
    assert "s3cret" not in str(refused.value)


def test_a_database_that_is_away_at_the_start_is_one_line_and_exit_1(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with started(configured(tmp_path, f"postgresql://fleetd@127.0.0.1:{port}/fleet")) as controller:
        said = controller.stderr.read() if controller.stderr is not None else ""
    assert controller.returncode == 1, "trying again later may do"
    last = said.splitlines()[-1]
    assert last.startswith(f"fleetd: postgresql://127.0.0.1:{port}/fleet: ")
    assert "Connection refused" in last
    assert "Traceback" not in said


def test_it_judges_and_ends_in_order(tmp_path: Path, postgres: Cluster) -> None:
    with started(configured(tmp_path, postgres.place().url)) as controller:
        assert controller.stderr is not None
        for line in controller.stderr:
            if "judge from now on" in line:
                break
        controller.terminate()
        rest = controller.stderr.read()
    assert controller.returncode == 0, rest
    assert "Traceback" not in rest
    assert not (tmp_path / "fleet.db").exists()
