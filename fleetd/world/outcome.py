"""What is left of a world when it has ended: everything that the checks look at."""

import hashlib
from dataclasses import dataclass

from fleetd.core.policy import Policy
from fleetd.model.finding import Finding
from fleetd.model.host import Host
from fleetd.model.ids import FindingId, HostName
from fleetd.model.journal import JournalEntry, StoreImage
from fleetd.sim.scheduler import Carried
from fleetd.stores.codec import dump_entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The end of a world. Times are virtual seconds since its beginning."""

    seconds: float
    policy: Policy
    journal: tuple[tuple[float, JournalEntry], ...]
    """What is on the controller's disk: (when it was synced, entry)."""
    image: StoreImage
    """What a controller that starts now would begin with."""
    rows: tuple[Finding, ...]
    """Every finding as the ledger has it."""
    hosts: tuple[Host, ...]
    """As the controller had them in memory at the end; the image's when no controller was alive."""
    carried: tuple[Carried, ...]
    """Fleet orders as the scheduler carried them out."""
    drained: frozenset[HostName]
    """Hosts that the scheduler keeps jobs from, by fleetd's orders."""
    attended: bool
    """Whether a crew looked after the fleet."""
    found: dict[FindingId, Finding]
    """Every finding that an agent had on its disk, and was not dropped from a full spool."""
    unsent: int
    """Findings that wait in a spool."""
    lost_disks: int
    """Disks that were replaced with findings on them."""
    planted: frozenset[HostName]
    """Hosts with which something was wrong at some time."""
    sick: frozenset[HostName]
    """Hosts with which something is wrong, or that are off or cut off, now."""

    def state(self, name: str) -> Host:
        """One host as the controller saw it at the end. Raises KeyError for a host that it never heard of."""
        return {host.name: host for host in self.hosts}[HostName(name)]

    @property
    def dump(self) -> bytes:
        """The journal as the ledger writes it: one line an entry, each after the virtual time of its sync."""
        return b"".join(f"{at_s!r} {dump_entry(entry)}\n".encode() for at_s, entry in self.journal)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the journal, byte for byte."""
        return hashlib.sha256(self.dump).hexdigest()
