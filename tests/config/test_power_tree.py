"""The power tree as people write it: what is read, and the one line for every mistake."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from fleetd.cli import main
from fleetd.config import ConfigError
from fleetd.config.files import load_agent
from fleetd.config.power_tree import load_power_tree

GOOD = """\
apiVersion: fleetd/v1
kind: PowerTree
areas:
  - {name: hall, budget_watts: 60000}
  - {name: r1, budget_watts: 40000, parent: hall}
hosts:
  - {hosts: "h[001-003]", area: r1, safe_watts: 6000, max_watts: 9000}
  - {hosts: "login1,login2", area: hall, safe_watts: 800, max_watts: 1200, controlled: false}
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "tree.yaml"
    path.write_text(text)
    return path


def test_a_tree_is_read(tmp_path: Path) -> None:
    tree = load_power_tree(write(tmp_path, GOOD))
    assert [area.parent for area in tree.areas] == [None, "hall"]
    assert [host.name for host in tree.hosts] == ["h001", "h002", "h003", "login1", "login2"]
    assert [host.controlled for host in tree.hosts] == [True] * 3 + [False] * 2
    assert (tree.ttl_s, tree.grace_s) == (60.0, 6.0)


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ("budget_watts: 40000", "budget_watts: 17999", 5, "safe caps of the hosts in r1 .* add up to 18000 W"),
        ("budget_watts: 60000", "budget_watts: 20000", 4, "in hall .* add up to 20400 W, above its budget of 20000 W"),
        ("parent: hall", "parent: room", 5, "area r1 stands below area room, which does not exist"),
        ("budget_watts: 60000", "budget_watts: 60000, parent: r1", 5, "area r1 stands below itself"),
        ("area: r1", "area: r2", 7, "host h001 stands below area r2, which does not exist"),
        ("name: r1", "name: hall", 5, "area hall stands a second time; first in line 4"),
        ("login1,login2", "login1,h002", 8, "host h002 stands a second time; first in line 7"),
        ("h[001-003]", "h[3-1", 7, "is no list of hosts; write it as h01"),
        ("h[001-003]", "", 7, "is no list of hosts"),
        ("h[001-003]", "h[1-200000]", 7, "is no list of hosts"),
        ("h[001-003]", "h[1-99999]", 8, "more than 100000 hosts in one tree"),
        ("safe_watts: 6000", "safe_watts: 6000000", 7, "safe_watts: 6e.06 W is no power of one host"),
        ("max_watts: 9000", "max_watts: 5000", 7, "max_watts: 5000 W is below the safe_watts of 6000 W"),
        ("budget_watts: 40000", "budget_watts: -1", 5, "budget_watts: -1 W is no budget"),
        ("budget_watts: 40000", "budget: 40000", 5, "unknown key `areas.1..budget`; did you mean `budget_watts`"),
        ("kind: PowerTree", "kind: PowerTree\nttl_seconds: 1", 3, "ttl_seconds: 1 is not from 6 to 120"),
        ("kind: PowerTree", "kind: PowerTree\ngrace_seconds: 0.2", 3, "grace_seconds: 0.2 is not from 5 to 30"),
        ("kind: PowerTree", "kind: Policy", 2, "kind must be `PowerTree`"),
    ],
)
def test_a_mistake_is_one_line(tmp_path: Path, old: str, new: str, line: int, says: str) -> None:
    assert old in GOOD
    path = write(tmp_path, GOOD.replace(old, new))
    with pytest.raises(ConfigError, match=says) as caught:
        load_power_tree(path)
    assert caught.value.line == line
    assert "\n" not in str(caught.value)


def test_a_controller_does_not_start_with_a_tree_that_cannot_be_kept(tmp_path: Path) -> None:
    tree = write(tmp_path, GOOD.replace("budget_watts: 40000", "budget_watts: 1000"))
    config = tmp_path / "controller.yaml"
    (tmp_path / "state").mkdir()
    config.write_text(
        f"apiVersion: fleetd/v1\nkind: Controller\nstate_dir: {tmp_path / 'state'}\n"
        f'power: {{tree: {tree}}}\nserver: {{listen: "127.0.0.1:0", insecure: true}}\n'
    )
    result = CliRunner().invoke(main, ["controller", "--config", str(config)])
    assert result.exit_code == 2
    assert result.stderr.startswith(f"fleetd: {tree}:5: the safe caps of the hosts in r1")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("power", "line", "says"),
    [
        ("{host_base_watts: 100}", 4, "power: host_base_watts: without an envelope nothing is governed"),
        ("{envelope: h200, host_base_watts: -1}", 4, "power: host_base_watts: -1.0 is below 0"),
        (
            "{mode: safe, envelope: h200, host_base_watts: 100, interval_seconds: 0.6}",
            4,
            "power: interval_seconds: 0.6 is too slow for host_base_watts",
        ),
    ],
)
def test_an_agent_that_could_not_keep_a_lease_does_not_start(tmp_path: Path, power: str, line: int, says: str) -> None:
    path = tmp_path / "agent.yaml"
    path.write_text(
        f"apiVersion: fleetd/v1\nkind: Agent\nstate_dir: {tmp_path}\npower: {power}\n"
        'uplink: {address: "127.0.0.1:1", insecure: true}\n'
    )
    with pytest.raises(ConfigError, match=says) as caught:
        load_agent(path)
    assert caught.value.line == line
