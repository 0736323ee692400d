"""Ledgers in PostgreSQL: loaded only where one is used, because its driver is an extra."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from fleetd.ports import Seat, Store, StoreError
from fleetd.stores.keep import Pruned
from fleetd.stores.place import PgPlace


def reader(place: PgPlace) -> Store:
    """Open a ledger to read. Raises StoreError."""
    with _driver():
        from fleetd.stores.postgres import PgStore  # noqa: PLC0415 - an extra
    return PgStore(place, read_only=True)


def prune(place: PgPlace, *, before_s: float, go_on: Callable[[], bool] = lambda: True) -> Pruned:
    """Prune a ledger, see `stores.keep.prune_by`. Raises StoreError."""
    with _driver():
        from fleetd.stores.postgres import prune as prune_shared  # noqa: PLC0415 - an extra
    return prune_shared(place, before_s=before_s, go_on=go_on)


def seat_of(place: PgPlace, *, holder: str) -> Seat:
    """The judge's place on a ledger. Raises StoreError."""
    with _driver():
        from fleetd.stores.seat import PgSeat  # noqa: PLC0415 - an extra
    return PgSeat(place, holder=holder)


def upgrade(place: PgPlace) -> None:
    """Bring a ledger that no controller has to this version's schema. Raises StoreError."""
    with alone(place, holder="fleetd store upgrade"):
        pass  # to have it is to have it upgraded


@contextmanager
def alone(place: PgPlace, *, holder: str) -> Iterator[Store]:
    """Have a ledger to oneself, as its judge has. Raises StoreError, also while a controller has it."""
    seat = seat_of(place, holder=holder)
    try:
        store = seat.take()
        if store is None:
            raise StoreError(f"{place.where}: a controller has this ledger: stop it first")
        with closing(store):
            yield store
    finally:
        seat.leave()


@contextmanager
def _driver() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        needs = f"a ledger in PostgreSQL needs `{error.name}`: pip install 'fleetd[controller,postgres]'"
        raise StoreError(needs) from error
