"""Texts and numbers that no configuration may hold, whatever they are for, and how a message quotes them."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from fleetd.config import ConfigError
from fleetd.config.files import load_agent, load_controller
from fleetd.config.shipped import policy_path

CONTROLLER: dict[str, Any] = {"state_dir": "s", "server": {"listen": "127.0.0.1:0", "insecure": True}}
AGENT: dict[str, Any] = {"state_dir": "s", "uplink": {"address": "127.0.0.1:1", "insecure": True}}


def refused(tmp_path: Path, kind: str, **changes: object) -> str:
    body = {"apiVersion": "fleetd/v1", "kind": kind, **(AGENT if kind == "Agent" else CONTROLLER), **changes}
    path = tmp_path / "f.yaml"
    path.write_text(yaml.safe_dump(body))
    with pytest.raises(ConfigError) as caught:
        (load_agent if kind == "Agent" else load_controller)(path)
    said = str(caught.value)
    assert said.startswith(f"{path}:")
    assert said.isprintable()
    return said.removeprefix(f"{path}:")


@pytest.mark.parametrize(
    "changes",
    [
        {"state_dir": "x\0y"},
        {"policy": "x\0y"},
        {"policy": "\x1b[31m"},
        {"power": {"tree": "x\0y"}},
        {"server": {"listen": "127.0.0.1:0", "ca": "x\0y", "cert": "c", "key": "k"}},
        {"web": {"insecure": True, "tokens": "x\0y"}},
        {"actuator": {"kind": "slurm", "conf": "x\0y"}},
        {"actuator": "x\0y"},
    ],
)
def test_control_characters_are_refused_wherever_they_stand(tmp_path: Path, changes: dict[str, object]) -> None:
    assert "control character U+00" in refused(tmp_path, "Controller", **changes)


def test_a_message_stays_one_short_line(tmp_path: Path) -> None:
    assert "\N{REPLACEMENT CHARACTER}" in refused(tmp_path, "Controller", actuator="\u202ex")
    assert len(refused(tmp_path, "Agent", exporter={"listen": "x" * 5000})) < 1100


def test_file_names_that_no_file_can_have_are_refused(tmp_path: Path) -> None:
    assert "longer than a file name may be" in refused(tmp_path, "Controller", state_dir="x" * 300)
    assert "longer than a file name may be" in refused(tmp_path, "Agent", state_dir="/x" * 3000)
    assert "write for example /" in refused(tmp_path, "Agent", status={"socket": "/"})
    assert policy_path("x" * 5000) == Path("x" * 5000)


@pytest.mark.parametrize("number", [2**53 + 1, -(10**30)])
def test_numbers_beyond_counting_are_refused(tmp_path: Path, number: int) -> None:
    assert "beyond" in refused(tmp_path, "Agent", devices={"backend": "sim", "seed": number})


def test_more_agents_than_can_be_served_are_refused(tmp_path: Path) -> None:
    server = {"listen": "127.0.0.1:0", "insecure": True, "agents_max": 2**40}
    assert "server: agents_max: 1099511627776 is more than" in refused(tmp_path, "Controller", server=server)


@pytest.mark.parametrize("kind", ["webhook", "kubernetes"])
def test_a_host_that_no_request_can_be_sent_to_is_refused(tmp_path: Path, kind: str) -> None:
    where = {"url": "https://a b/", "secret": "s"} if kind == "webhook" else {"server": "https://a b/"}
    assert "has characters that no address has" in refused(tmp_path, "Controller", actuator={"kind": kind, **where})
