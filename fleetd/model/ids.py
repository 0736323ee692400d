"""Names of things. Each is a plain string to the wire and a type of its own to the type checker."""

from typing import NewType

HostName = NewType("HostName", str)
"""The name a host is known by in the fleet: what its certificate says, what the scheduler calls it."""

GpuId = NewType("GpuId", str)
"""UUID or serial of a GPU. Never an ordinal: ordinals change with every swap and every visible-devices mask."""

BootId = NewType("BootId", str)
"""The kernel's boot id: facts of different boots never mix."""

SpoolId = NewType("SpoolId", str)
"""Identity of one spool database. Sequence numbers count within it; a reinstalled host gets a new one."""

FindingId = NewType("FindingId", str)
"""Stable identity of one fact: the same fact sent or found again carries the same id, so it counts once."""

OrderId = NewType("OrderId", str)
"""Idempotency key of an order: carried out once in effect, however often it is delivered."""
