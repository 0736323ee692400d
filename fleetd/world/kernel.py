"""What the kernel of a simulated host says: about the troubles that it sees at once, and to the agent that reads it."""

import functools

from fleetd.agent.log_watch import LogWatch
from fleetd.agent.sampler import Sampler
from fleetd.config.faults import load_catalogue
from fleetd.core.faults.catalogue import Catalogue
from fleetd.model.finding import FaultClass
from fleetd.model.ids import HostName
from fleetd.ports import Clock, Spool
from fleetd.sim.gpu import Trouble
from fleetd.sim.kernel_log import KernelRing, SimKernelLog
from fleetd.sim.life import Life

KERNEL_SAYS: dict[Trouble, tuple[str, FaultClass, str]] = {
    Trouble.LOST: ("nvidia.xid.79", FaultClass.UNRESPONSIVE, "GPU has fallen off the bus"),
    Trouble.MEMORY: ("nvidia.xid.48", FaultClass.MEMORY, "double-bit ECC error"),
}
"""Trouble → code, class and words of what the kernel logs about it at once."""


@functools.cache
def shipped_catalogue() -> Catalogue:
    """Read once: a fleet of a hundred thousand agents has one."""
    return load_catalogue()


def log_watch(
    catalogue: Catalogue | None,
    ring: KernelRing | None,
    *,
    host: HostName,
    life: Life,
    spool: Spool,
    clock: Clock,
    sampler: Sampler,
) -> LogWatch | None:
    """The reader of a host's kernel log; None in a world without a catalogue: nobody could judge the lines."""
    if catalogue is None or ring is None:
        return None
    return LogWatch(
        host=host,
        boot_id=ring.boot_id,
        log=SimKernelLog(ring, life),
        catalogue=catalogue,
        spool=spool,
        clock=clock,
        inventory=lambda: sampler.inventory,
    )
