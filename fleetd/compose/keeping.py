"""Ledgers at rest: checked, upgraded, restored. What a controller does to a living one is in `compose.controller`."""

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from fleetd.compose import shared
from fleetd.compose.ledger import journal, ledger
from fleetd.config import load_policy
from fleetd.config.shipped import policy_path
from fleetd.core.chain import BrokenJournal, unbroken
from fleetd.core.fleet import Fleet
from fleetd.core.judgement import judge
from fleetd.model.event import LedgerRestored
from fleetd.model.journal import JournalEntry
from fleetd.ports import Clock, Store, StoreError
from fleetd.stores.file import in_use
from fleetd.stores.keep import copy, put_in_place
from fleetd.stores.place import PgPlace
from fleetd.stores.sql import SqlStore

ORDERS_SKIPPED = 100_000
"""Order numbers that a restored ledger leaves out: many more than a host is given between two backups."""
_BATCH = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A ledger that is whole."""

    hosts: int
    entries: int
    begins_at: int
    """Position behind which its journal begins."""
    newest_at_s: float | None
    """Wall time of its newest entry; None without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """A ledger that was put in place."""

    checked: Checked
    kept: Path | None
    """Where the one lies that was there before."""


def checked(store: Store, *, at_rest: bool = False) -> Checked:
    """Read a ledger from its first entry to its last; `at_rest`: nobody writes it meanwhile.

    Raises StoreError or BrokenJournal where it is not whole.
    """
    image, beginning = store.load(), store.beginning()
    entries, newest_at_s = 0, None
    stood = {host.name: host for host in beginning.hosts}
    for entry in unbroken(journal(store), image.hosts, image.fleet, beginning):
        entries, newest_at_s = entries + 1, entry.at_s
        if entry.host is not None:
            stood[entry.host.name] = entry.host
    kept = {host.name: host for host in store.load().hosts}  # read anew: hosts may have come meanwhile
    for name, host in stood.items():
        if name not in kept or (at_rest and kept[name] != host):
            raise BrokenJournal(f"host {name} is in the journal, and not as it should be among the ledger's hosts")
    return Checked(hosts=len(image.hosts), entries=entries, begins_at=beginning.position, newest_at_s=newest_at_s)


def check(at: Path | PgPlace) -> Checked:
    """Check a ledger that may be in use. Raises StoreError or BrokenJournal."""
    with ledger(at, everything=True) as store:
        return checked(store)


def upgrade(path: Path) -> None:
    """Bring a ledger that nobody uses to this version's schema. Raises StoreError."""
    if not path.exists():
        raise StoreError(f"{path}: there is no such file")
    with in_use(path):
        SqlStore(path).close()


def restore(backup: Path, path: Path, *, who: str, reason: str, clock: Clock) -> Restored:
    """Put a backup in the place of a ledger that no controller has, after it was read from end to end.

    Every host's journal says so, and its next orders get numbers that none had: whoever carries orders out knows those
    that were given after the backup, and would take new ones of the same number for repeats.

    Raises StoreError or BrokenJournal; the ledger that was there is then still there.
    """
    with in_use(path):
        copied = path.with_name(f".{path.name}.restored")
        copied.unlink(missing_ok=True)
        copy(backup, copied)
        try:
            try:
                with closing(SqlStore(copied)) as store:
                    found = checked(store, at_rest=True)
                    _tell(store, who=who, reason=reason, now_s=clock.wall_s())
            except StoreError as error:
                said = str(error).replace(str(copied), str(backup))  # nobody knows the copy by its name
                raise StoreError(said if str(backup) in said else f"{backup}: {said}") from error
            kept = put_in_place(copied, path, aside=f"replaced-{clock.wall_s():.0f}")
        finally:
            for suffix in ("", "-wal", "-shm"):
                Path(f"{copied}{suffix}").unlink(missing_ok=True)
        return Restored(checked=found, kept=kept)


def tell_restored(place: PgPlace, *, who: str, reason: str, clock: Clock) -> Checked:
    """Write into a ledger in PostgreSQL that it was put back from a dump, after it was read from end to end.

    Raises StoreError, also while a controller has it, or BrokenJournal.
    """
    with shared.alone(place, holder="fleetd store restored") as store:
        found = checked(store, at_rest=True)
        _tell(store, who=who, reason=reason, now_s=clock.wall_s())
        return found


def _tell(store: Store, *, who: str, reason: str, now_s: float) -> None:
    """Write into every host's journal that the ledger was restored."""
    image = store.load()
    policy = load_policy(policy_path("observe"))
    fleet = Fleet.of(image, policy)
    entries = []
    for host in image.hosts:
        event = LedgerRestored(host=host.name, who=who, reason=reason, orders_skipped=ORDERS_SKIPPED)
        step = judge(now_s=now_s, host=host, event=event, fleet=fleet, policy=policy)
        entries.append(
            JournalEntry(
                at_s=now_s,
                event=event,
                host=step.state,
                orders=step.orders,
                withheld=step.withheld,
                refused=step.refused,
                fleet=step.fleet,
                why=step.why,
                progress=None,
            )
        )
    for start in range(0, len(entries), _BATCH):
        store.commit(entries[start : start + _BATCH])
