"""One ledger under two names, and a name that leads nowhere: no second controller, and no first start."""

import os
from contextlib import closing
from pathlib import Path

import pytest

from fleetd.ports import StoreError
from fleetd.stores.file import in_use
from fleetd.stores.sql import SqlStore


def test_a_ledger_under_another_name_is_in_use(tmp_path: Path) -> None:
    path, other = tmp_path / "fleet.db", tmp_path / "other" / "fleet.db"
    SqlStore(path).close()
    other.parent.mkdir()
    other.symlink_to(path)
    with in_use(path), pytest.raises(StoreError, match="a controller has this ledger"), in_use(other):
        pass
    with in_use(other), pytest.raises(StoreError, match="a controller has this ledger"), in_use(path):
        pass


def test_a_ledger_with_a_hard_link_is_refused(tmp_path: Path) -> None:
    path, other = tmp_path / "fleet.db", tmp_path / "other.db"
    SqlStore(path).close()
    os.link(path, other)
    for name in (path, other):
        with pytest.raises(StoreError, match="another name"), in_use(name):
            pass
    other.unlink()
    with in_use(path), closing(SqlStore(path)):
        pass


@pytest.mark.parametrize("target", ["data/fleet.db", "fleet.db.moved"])
def test_a_link_to_a_disk_that_is_not_mounted_is_no_first_start(tmp_path: Path, target: str) -> None:
    path = tmp_path / "fleet.db"
    path.symlink_to(tmp_path / target)
    with pytest.raises(StoreError, match="which is not there"), in_use(path):
        pass
    with pytest.raises(StoreError, match="which is not there"):
        SqlStore(path)
    assert path.is_symlink()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["fleet.db"]
