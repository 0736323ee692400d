"""The dry-run actuator: recorded once, over restarts and torn writes too."""

import asyncio
import json
import resource
from pathlib import Path

import pytest

from fleetd.actuators.dryrun import DryRun
from fleetd.model.ids import HostName, OrderId
from fleetd.model.order import Quarantine
from fleetd.ports import ActuatorError
from fleetd.system import run_blocking


def _order(number: int) -> Quarantine:
    return Quarantine(id=OrderId(f"h01/{number}/quarantine"), host=HostName("h01"), issued_at_s=1.0, why="w")


def _recorded(path: Path) -> list[str]:
    return [json.loads(line)["order"] for line in path.read_text().splitlines()]


def test_an_order_is_recorded_once_however_often_it_comes(tmp_path: Path) -> None:
    path = tmp_path / "orders.jsonl"
    for _restart in range(2):
        actuator = DryRun(path, run_blocking=run_blocking)
        for _again in range(2):
            receipt = asyncio.run(actuator.carry_out(_order(1)))
            assert receipt.done
            assert receipt.why == "dry run: recorded quarantine of h01"
    assert _recorded(path) == ["h01/1/quarantine"]


def test_controllers_that_share_a_record_record_an_order_once(tmp_path: Path) -> None:
    path = tmp_path / "orders.jsonl"
    first, second = (DryRun(path, run_blocking=run_blocking) for _ in range(2))
    for number, actuator in enumerate([first, second, second, first, first, second]):
        asyncio.run(actuator.carry_out(_order(number // 2)))
    assert _recorded(path) == [f"h01/{number}/quarantine" for number in range(3)]


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_write_cut_by_a_crash_counts_as_not_written(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "orders.jsonl"
    actuator = DryRun(path, run_blocking=run_blocking)
    asyncio.run(actuator.carry_out(_order(1)))
    asyncio.run(actuator.carry_out(_order(2)))
    path.write_bytes(path.read_bytes()[:-cut])
    again = DryRun(path, run_blocking=run_blocking)
    for number in (1, 2):
        asyncio.run(again.carry_out(_order(number)))
    assert _recorded(path) == ["h01/1/quarantine", "h01/2/quarantine"]


def test_another_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("shopping list\n")
    with pytest.raises(ActuatorError, match="not a record"):
        DryRun(path, run_blocking=run_blocking)
    assert path.read_text() == "shopping list\n"


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(ActuatorError, match="No such file or directory"):
        DryRun(tmp_path / "nowhere" / "orders.jsonl", run_blocking=run_blocking)


def test_after_a_write_that_found_no_space_the_order_is_recorded_whole(tmp_path: Path) -> None:
    path = tmp_path / "orders.jsonl"
    actuator = DryRun(path, run_blocking=run_blocking)
    asyncio.run(actuator.carry_out(_order(1)))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 10, hard))  # the next line does not fit whole
    try:
        for _again in range(2):
            with pytest.raises(ActuatorError):
                asyncio.run(actuator.carry_out(_order(2)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    asyncio.run(actuator.carry_out(_order(2)))
    assert _recorded(path) == ["h01/1/quarantine", "h01/2/quarantine"]


def test_a_record_that_grows_goes_on_in_a_new_file_and_one_older_one_is_kept(tmp_path: Path) -> None:
    path, older = tmp_path / "orders.jsonl", tmp_path / "orders.jsonl.1"
    line_bytes = 100
    for number in range(1, 21):
        actuator = DryRun(path, run_blocking=run_blocking, bytes_max=5 * line_bytes)  # with a restart each time
        for again in (number, max(1, number - 1)):
            asyncio.run(actuator.carry_out(_order(again)))
        assert path.stat().st_size <= 5 * line_bytes
    numbers = [int(order.split("/")[1]) for order in _recorded(older) + _recorded(path)]
    assert numbers == list(range(numbers[0], 21)), "each once, none missing, the newest kept"
    assert len(_recorded(older)) > 1
    assert {file.name for file in tmp_path.iterdir()} == {path.name, older.name}
