"""What may cross the wire: limits, and the checks that turn a bad message into one line.

A peer may be newer, broken or hostile; none of these may make the reader crash, grow or print control characters.
"""

import math
from collections.abc import Callable, Collection
from enum import Enum
from typing import Generic, TypeVar

from fleetd.ports import UplinkError

MAX_MESSAGE_BYTES = 1 << 20
"""Largest message that a controller or an agent receives."""
MAX_NAME_CHARS = 256
"""Longest identifier, name or version."""
MAX_TEXT_CHARS = 4000
"""Longest free text (`why`, `reason`); longer text is cut when it is sent and refused when it is received."""
MAX_GPUS = 256
"""Most GPUs of one host: length of an inventory, of a telemetry batch, of the culprits of a run."""
MAX_BALLOTS = 64
"""Most ballots of one burn-in run."""
MAX_CAPABILITIES = 64
"""Most capabilities in a hello."""

Item = TypeVar("Item")
Made = TypeVar("Made")


class CodecError(UplinkError):
    """A message breaks the protocol; the text is one line that names the field."""


def name(value: str, what: str) -> str:
    """Return an identifier unchanged; raises CodecError unless it is printable, not empty and short enough."""
    if not value:
        raise CodecError(f"{what} is missing")
    return label(value, what)


def label(value: str, what: str) -> str:
    """Return an identifier that may be empty; raises CodecError unless it is printable and short enough."""
    if len(value) > MAX_NAME_CHARS:
        raise CodecError(f"{what} is {len(value)} characters long, at most {MAX_NAME_CHARS} are allowed")
    if not value.isprintable():
        raise CodecError(f"{what} has characters that cannot be printed")
    return value


def clean(value: str) -> str:
    """Return free text fit for a terminal, a log and UTF-8: unprintable characters become spaces, the end is cut."""
    if len(value) > MAX_TEXT_CHARS:
        value = value[: MAX_TEXT_CHARS - 1] + "…"
    if value.isprintable():
        return value
    return "".join(character if character.isprintable() else " " for character in value)


def text(value: str, what: str) -> str:
    """Return received free text, cleaned; raises CodecError when it is too long."""
    if len(value) > MAX_TEXT_CHARS:
        raise CodecError(f"{what} is {len(value)} characters long, at most {MAX_TEXT_CHARS} are allowed")
    return clean(value)


def finite(value: float, what: str) -> float:
    """Return a number unchanged; raises CodecError when it is not finite."""
    if not math.isfinite(value):
        raise CodecError(f"{what} is {value}, a finite number is needed")
    return value


def unsigned(value: int, what: str, *, bits: int) -> int:
    """Return an integer unchanged; raises CodecError when it does not fit into `bits` unsigned bits."""
    if not 0 <= value < 1 << bits:
        raise CodecError(f"{what} is {value}, it must fit into {bits} unsigned bits")
    return value


def items(values: Collection[Item], make: Callable[[Item], Made], what: str, *, limit: int) -> tuple[Made, ...]:
    """Convert a list in order; raises CodecError when it has more than `limit` entries."""
    if len(values) > limit:
        raise CodecError(f"{what} has {len(values)} entries, at most {limit} are allowed")
    return tuple(make(value) for value in values)


Member = TypeVar("Member", bound=Enum)
Number = TypeVar("Number", bound=int)


class Words(Generic[Member, Number]):
    """An enumeration of the model and its numbers on the wire, joined by name (`Verdict.PASS` is `VERDICT_PASS`)."""

    def __init__(
        self, members: type[Member], number: Callable[[str], Number], prefix: str, *, fallback: Member | None
    ) -> None:
        """Join the two; raises ValueError when the wire has no number for a member.

        Args:
            members: the enumeration of the model.
            number: `Value` of the generated enum.
            prefix: what the wire's names begin with.
            fallback: what a number of a newer peer becomes; None refuses it.
        """
        self._numbers = {member: number(prefix + member.name) for member in members}
        self._members: dict[int, Member] = {value: member for member, value in self._numbers.items()}
        self._fallback = fallback

    def to_pb(self, member: Member) -> Number:
        """Return the number of a member."""
        return self._numbers[member]

    def from_pb(self, value: int, what: str) -> Member:
        """Return the member of a number; raises CodecError when it is not set, or unknown and without a fallback."""
        if value == 0:
            raise CodecError(f"{what} is not set")
        member = self._members.get(value, self._fallback)
        if member is None:
            raise CodecError(f"{what} is {value}, which the reader does not know: upgrade the side that reads")
        return member
