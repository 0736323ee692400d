"""What is put in its place is whole, or what was there stays."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetd.durable import settle, sync_folder

_LISTENING: dict[str, list[str]] = {}
"""Folder → what was opened and renamed there. An audit hook cannot be taken away: it asks whether somebody listens."""


def _hear(event: str, args: tuple[object, ...]) -> None:
    if event in {"os.rename", "open"}:
        for folder, heard in _LISTENING.items():
            if str(args[0]).startswith(folder):
                heard.append(f"{event} {Path(str(args[0])).name}")


sys.addaudithook(_hear)


@pytest.fixture
def heard(tmp_path: Path) -> Iterator[list[str]]:
    """Opens and renames in the test's folder, in order, as the interpreter's audit events tell them."""
    yield _LISTENING.setdefault(str(tmp_path), [])
    del _LISTENING[str(tmp_path)]


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
