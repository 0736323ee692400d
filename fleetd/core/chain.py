"""Whether a journal is whole: no entry is gone, and the last ones are there.

That each entry follows from the one before it, the store itself checks where it reads them.
"""

from collections.abc import Iterable, Iterator

from fleetd.model.fact import Beginning
from fleetd.model.fleet import FleetRecord
from fleetd.model.host import Host
from fleetd.model.journal import JournalEntry


class BrokenJournal(Exception):  # noqa: N818 - it says what is broken
    """A journal that cannot be judged; the message is one line that says where it breaks."""


def unbroken(
    rows: Iterable[tuple[int, JournalEntry]],
    hosts: Iterable[Host],
    fleet: FleetRecord,
    beginning: Beginning | None = None,
) -> Iterator[JournalEntry]:
    """Pass the entries of a journal on, and see that none is missing.

    Args:
        rows: position and entry, from the beginning.
        hosts: what the ledger keeps of its hosts, read before the journal: a controller may be adding to it.
        fleet: what it keeps of the fleet, read then, too.
        beginning: where a pruned journal begins; None: at nothing.

    Raises:
        BrokenJournal: at the entry where it breaks, or at the end.
    """
    beginning = beginning if beginning is not None else Beginning()
    stood = {host.name: host for host in beginning.hosts}
    missing = {host.name: host for host in hosts if stood.get(host.name) != host}
    record = fleet if fleet != beginning.fleet else None
    last = beginning.position
    for position, entry in rows:
        if position != last + 1:
            raise BrokenJournal(f"the journal has a gap: entry {last + 1} is missing before entry {position}")
        last = position
        if entry.host is not None and missing.get(entry.host.name) == entry.host:
            del missing[entry.host.name]
        if record is not None and entry.fleet == record:
            record = None
        yield entry
    if missing:
        name = min(missing)
        raise BrokenJournal(f"the journal ends too early: after entry {last}, host {name} is not as the ledger has it")
    if record is not None:
        raise BrokenJournal(f"the journal ends too early: after entry {last}, the fleet is not as the ledger has it")
