"""AMD lines whose numbers have to be read: RAS counters per block and the status word of an ACA bank.

Line shapes: `amdgpu BDF: [amdgpu: ][{event}][socket: S, die: D,] N [new] correctable|deferred|uncorrectable hardware
errors detected [in total] in BLOCK block`; `aca entry[NN].STATUS=0x…` and `ACA[01/01].STATUS=0x…`.
Status bits as in AMD's MCA: 63 valid, 61 uncorrected, 57 processor context corrupt, 44 deferred.
"""

import re
from collections.abc import Iterator

from fleetd.core.faults.observation import Observation

_COUNT = re.compile(
    r"(?P<n>\d+)\s+(?P<new>new\s+)?(?P<kind>correctable|uncorrectable|deferred) hardware errors? detected\s+"
    r"(?P<total>in total )?in (?P<block>[a-z0-9_]{1,24}) block",
    re.IGNORECASE,
)
_STATUS = re.compile(r"(?:entry\s*\[\d+\]|aca\s*\[\d+/\d+\])\.status\s*=\s*0x([0-9a-f]{1,16})", re.IGNORECASE)
_KINDS = {"correctable": "ce", "uncorrectable": "ue", "deferred": "de"}


def read(message: str, device: str | None) -> Iterator[Observation]:
    """RAS counters and ACA status words of one message. A count of zero is no fault."""
    for match in _COUNT.finditer(message):
        number = int(match["n"][:18])
        if number == 0:
            continue
        block = match["block"].lower()
        kind = match["kind"].lower()
        plain = match["new"] is None and match["total"] is None
        yield Observation(
            code=f"amd.ras.{block}.{_KINDS[kind]}",
            device=device,
            part=block,
            why=f"{number} {kind} errors in the {block} block",
            counts=(number,) if plain else (),
        )
    for match in _STATUS.finditer(message):
        yield Observation(code=_aca_code(int(match[1], 16)), device=device)


def counts_nothing(message: str) -> bool:
    """Whether the line reports counters and all of them are zero."""
    found = _COUNT.findall(message)
    return bool(found) and all(int(groups[0][:18]) == 0 for groups in found)


def _aca_code(status: int) -> str:
    if not status >> 63 & 1:
        return "amd.aca.logged"
    if status >> 61 & 1:
        return "amd.aca.uc_pcc" if status >> 57 & 1 else "amd.aca.uc"
    return "amd.aca.deferred" if status >> 44 & 1 else "amd.aca.ce"
