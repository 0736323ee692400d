"""The first sieve of a log: which lines of a block of bytes are looked at at all.

One search for each word over a whole block costs far less than anything done for each line.
"""

TRIGGERS = (
    b"nvrm", b"xid", b"nvidia", b"nvswitch", b"amdgpu", b"[drm", b"poison", b"error address", b"gpu reset",
    b"hardware error", b"pcieport", b"pcie b", b"io_page_fault", b"dmar: [dma", b"edac mc", b"out of memory",
    b"oom-kill", b"segfault at", b"kernel panic", b"sysrq_handle_crash", b"unable to handle", b"kernel bug at",
    b"general protection", b"lockup", b"detected stall", b"blocked for more than", b"linux version ",
    b"memory failure: 0x", b"pci bridge to [bus", b'"message":[',
)  # fmt: skip
"""Words of which every line that matters has one (in lower case); a test holds it against the catalogue.

A journal's message of bytes hides its words in numbers: such records are all looked at, and there are few."""

_MARKERS = (b"NVRM:", b"amdgpu", b"nvidia-nvswitch", b"pcieport")
"""Where the message of a line begins that is told by its text alone, whatever stands before it."""

_PLAIN_ENDS = (b"]", b"kernel:", b"[drm:", *(str(digit).encode() for digit in range(10)))
"""What may stand before a marker that no program wrote, if anything does: a time, the kernel's tag."""


def short_cut(line: bytes) -> bytes | None:
    """The part of a line that says everything, for the memory of messages; None where the prefix matters too."""
    head = line[:5]
    if b"," in head or line[:1] in b"<{" or line[:4].lower() == b"user":
        return None  # these say whether the kernel wrote the line
    for marker in _MARKERS:
        position = line.find(marker)
        if position >= 0:
            before = line[:position].rstrip()
            plain = b"]:" not in before and (not before or before.endswith(_PLAIN_ENDS))
            return line[position:] if plain else None
    return None


def candidates(lower: bytes) -> list[tuple[int, int]]:
    """Begin and end of every line with a trigger, in order."""
    found: set[tuple[int, int]] = set()
    size = len(lower)
    for trigger in TRIGGERS:
        position = lower.find(trigger)
        while position >= 0:
            start = lower.rfind(b"\n", 0, position) + 1
            end = lower.find(b"\n", position)
            end = size if end < 0 else end
            found.add((start, end))
            position = lower.find(trigger, end)
    return sorted(found)
