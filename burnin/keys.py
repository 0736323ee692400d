"""Keys: what everything random in burn-in is made from, by the seed of the run and its name. No torch, no numpy."""

from hashlib import blake2b

MASK64 = 0xFFFF_FFFF_FFFF_FFFF


def derive(seed: int, *names: str | int) -> int:
    """Return a 64-bit key that depends on the seed and every name, in order (BLAKE2b, 8 bytes, little-endian).

    Args:
        seed: any integer; only its value modulo 2**64 counts.
        names: what the key is for, such as the test, the case, the operand.
    """
    text = "\x1f".join([str(seed & MASK64), *(str(name) for name in names)])
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")
