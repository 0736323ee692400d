"""What is put in its place is whole, or what was there stays."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetd.durable import settle, sync_folder

_seen: list[str] | None = None


def _hear(event: str, args: tuple[object, ...]) -> None:
    if _seen is not None and event in {"os.rename", "open"}:
        _seen.append(f"{event} {Path(os.fsdecode(str(args[0]))).name}")


sys.addaudithook(_hear)


@pytest.fixture
def heard() -> Iterator[list[str]]:
    """Opens and renames, in order, as the interpreter's audit events tell them."""
    global _seen  # noqa: PLW0603 - an audit hook cannot be taken away
    _seen = []
    yield _seen
    _seen = None


def test_the_new_file_replaces_the_old_one_whole(tmp_path: Path) -> None:
    part, to = tmp_path / "part", tmp_path / "to"
    part.write_text("new")
    to.write_text("old, and longer")
    settle(part, to)
    assert to.read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["to"]


def test_the_file_is_synced_before_its_name_and_the_folder_after(tmp_path: Path, heard: list[str]) -> None:
    part = tmp_path / "part"
    part.write_text("new")
    heard.clear()
    settle(part, tmp_path / "to")
    assert heard == ["open part", "os.rename part", f"open {tmp_path.name}"]


def test_what_was_there_stays_when_there_is_nothing_to_put(tmp_path: Path) -> None:
    to = tmp_path / "to"
    to.write_text("old")
    with pytest.raises(FileNotFoundError):
        settle(tmp_path / "part", to)
    assert to.read_text() == "old"


def test_only_a_folder_has_names(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(NotADirectoryError):
        sync_folder(file)
