"""A ledger on the command line: a file, or the URL of a PostgreSQL database."""

from pathlib import Path

import click

from fleetd.cli.failure import Failure
from fleetd.stores.place import PgPlace


class LedgerAt(click.ParamType[Path | PgPlace]):
    """`fleet.db`, or `postgresql://USER@HOST/DATABASE`."""

    name = "ledger"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Path | PgPlace:
        """Take what contains `://` for a URL."""
        if isinstance(value, PgPlace | Path):
            return value
        if "://" not in str(value):
            return Path(str(value))
        try:
            return PgPlace(url=str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


def shown(at: Path | PgPlace) -> str:
    """A ledger in messages: no user, no option."""
    return at.where if isinstance(at, PgPlace) else str(at)


def there(at: Path | PgPlace, *, option: str = "--ledger") -> None:
    """Raise Failure for a file that is not there; a database says so itself."""
    if isinstance(at, Path) and not at.is_file():
        raise Failure(f"{at}: there is no such file; {option} names `fleet.db` in the controller's state_dir")
