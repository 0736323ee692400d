"""The ledger in an SQLite file."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa

from fleetd.ports import StoreError
from fleetd.stores import upgrade
from fleetd.stores.file import begin, engine_of, one_line, see_it_is_no_stump, see_it_is_whole
from fleetd.stores.queries import Queries


class SqlStore(Queries):
    """A `Store` on an SQLite file: WAL, every commit synced to disk before it returns."""

    def __init__(self, path: Path, *, read_only: bool = False, everything: bool = False) -> None:
        """Open the file; create it, or bring it to this version's schema, unless `read_only`.

        A file of up to `file.WHOLE_CHECK_BYTES` is read whole first; a larger one when `everything` is set.

        Raises StoreError when it cannot, when a newer version wrote it, or when the file is there and empty.
        """
        self._path = path
        if not read_only:
            begin(path)
        see_it_is_no_stump(path)
        super().__init__(engine_of(path, read_only=read_only), where=str(path))
        self._writing = self._engine.execution_options(immediate=True)
        try:
            with self._guarded(write=not read_only) as connection:
                see_it_is_whole(connection, path, everything=everything)
                try:
                    if read_only:
                        upgrade.check(connection)
                    else:
                        upgrade.upgrade(connection, str(path))
                except StoreError as error:
                    raise type(error)(f"{path}: {error}") from error
        except StoreError:
            self._engine.dispose()
            raise

    @contextmanager
    def _guarded(self, *, write: bool = False) -> Iterator[sa.Connection]:
        # A writer takes its place in the queue at once: one that read first could be overtaken, and would fail.
        try:
            with (self._writing if write else self._engine).begin() as connection:
                yield connection
        except sa.exc.SQLAlchemyError as error:
            raise StoreError(one_line(self._path, error)) from error
