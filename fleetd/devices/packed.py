"""Pairs of numbers on their way from a helper: as text in JSON they would cost both sides more than to read them.

A ring of power samples is eighty pairs a GPU, every other second. Both ends are processes of one machine.
"""

from array import array
from binascii import a2b_base64, b2a_base64
from collections.abc import Iterable, Sequence


def pack(pairs: Iterable[Sequence[float]]) -> str:
    """Base64 of the pairs' doubles, one after the other. Raises TypeError or ValueError where one is no such pair."""
    flat = array("d", [number for one, other in pairs for number in (one, other)])
    return b2a_base64(flat.tobytes(), newline=False).decode()


def unpack(text: str) -> tuple[Sequence[float], Sequence[float]]:
    """All first and all second numbers of the pairs. Raises TypeError or ValueError when it is none of `pack`."""
    if not isinstance(text, str):
        raise TypeError(f"{text!r:.40} is not packed")
    flat = array("d")
    flat.frombytes(a2b_base64(text))
    if len(flat) % 2:
        raise ValueError("an odd number of numbers is no pairs")
    return flat[::2], flat[1::2]
