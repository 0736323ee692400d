"""One 64-bit value for the bytes of a tensor, the same on every device, and sums by tile for localisation.

The definition, over the tensor's bytes in row-major order as little-endian 32-bit words (the last one zero-padded)::

    checksum = length_term(seed, bytes) + sum over i of (word[i] + 1) * weight(seed, i)      modulo 2**64
    weight   = (y ^ y >> 16 ^ b) | 1,   y = (x ^ x >> 15) * 0x85EBCA6B,   x = i * 0x9E3779B1 + a     modulo 2**32
    (a, b)   = segment_keys(derive(seed, "checksum"), i // 2**32)

What follows from it: any change of a single word is seen, always (0 < |change| * weight < 2**64). Positions matter, NaN
payloads and the sign of zero matter. Two equal flips in the same direction are always seen; other combinations of
changes cancel only if a signed sum of 31-bit random weights does, with probability about 2**-31 for a given fault and
seed, and seeds rotate. Addition commutes, so no order of accumulation, number of programs or atomics can change the
value. The weights are no secret: this protects against broken hardware, not against an adversary.

64-bit words would be a mistake: with odd weights an even number of flips of the top bit cancels always.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import torch

from burnin.crew import spread
from burnin.kernels import checksum_on_device, on_device, tile_sums_on_device
from burnin.keys import MASK64, derive
from burnin.words import counters, segment_keys, segments

TILE = 128
"""Edge of a tile in elements."""
CHUNK_WORDS = 1 << 17
"""Words weighed at a time on the CPU; their weights (1 MiB) are kept for the next launch of the same shape."""
SEGMENT_BYTES = 1 << 34
"""Bytes of one segment of 2**32 words; the tile kernel handles matrices up to this size."""


def length_term(nbytes: int, seed: int) -> int:
    """Return what the byte length adds to the checksum, so that zero padding and truncation are seen."""
    return derive(seed, "length", nbytes)


def checksum(tensor: torch.Tensor, seed: int) -> int:
    """Return the checksum of a tensor's bytes in row-major order, 0 … 2**64 - 1.

    Args:
        tensor: dense, any shape, strides, dtype and device; a non-contiguous one is copied first.
        seed: any integer; only its value modulo 2**64 counts.

    Raises:
        TypeError: the tensor is sparse or quantised and has no plain bytes.
    """
    if on_device(tensor):
        slot = torch.empty(1, dtype=torch.int64, device=tensor.device)
        checksum_into(slot, tensor, seed)
        return int(slot.item()) & MASK64
    raw = raw_bytes(tensor).cpu()
    return (_sum_words(raw.numpy(), derive(seed, "checksum")) + length_term(raw.numel(), seed)) & MASK64


def checksum_into(slot: torch.Tensor, tensor: torch.Tensor, seed: int) -> None:
    """Write the checksum into `slot` without waiting for the device (two launches, no host synchronisation).

    Args:
        slot: one int64 element on the tensor's device; the value is the checksum modulo 2**64 as a signed integer.
        tensor: see `checksum`.
        seed: see `checksum`.

    Raises:
        TypeError: the tensor is sparse or quantised, or the slot is not one int64.
    """
    if slot.dtype is not torch.int64 or slot.numel() != 1:
        raise TypeError(f"the slot of a checksum is one int64, not {slot.numel()} x {slot.dtype}")
    if on_device(tensor):
        raw = _aligned(raw_bytes(tensor))
        checksum_on_device(slot, raw, derive(seed, "checksum"), length_term(raw.numel(), seed))
    else:
        slot.fill_(signed64(checksum(tensor, seed)))


def tile_count(matrix: torch.Tensor) -> int:
    """Return the number of tiles of a matrix (any tensor is read as rows of its last dimension)."""
    rows, columns = _matrix(matrix).shape
    return -(-rows // TILE) * -(-columns // TILE)


def tile_sums(tensor: torch.Tensor, seed: int) -> torch.Tensor:
    """Return the part of the checksum that each tile of 128 x 128 elements contributes, row by row of tiles.

    Args:
        tensor: read as a matrix of its last dimension; see `checksum`.
        seed: see `checksum`.

    Returns:
        int64, shape (tiles,), on the tensor's device. `total` of it is the checksum of the tensor. A word belongs to
        the tile of its first byte.
    """
    out = torch.empty(tile_count(tensor), dtype=torch.int64, device=tensor.device)
    tile_sums_into(out, tensor, seed)
    return out


def tile_sums_into(out: torch.Tensor, tensor: torch.Tensor, seed: int) -> None:
    """Write `tile_sums` into `out` (int64, one element a tile, same device) without waiting for the device."""
    matrix = _matrix(tensor).contiguous()
    if out.shape != (tile_count(matrix),) or out.dtype is not torch.int64:
        raise TypeError(f"{tile_count(matrix)} int64 are needed for the tiles, not {tuple(out.shape)} {out.dtype}")
    if not matrix.numel():
        return
    key = derive(seed, "checksum")
    if on_device(matrix) and matrix.nbytes <= SEGMENT_BYTES:
        if matrix.data_ptr() % 4:
            matrix = matrix.clone()
        tile_sums_on_device(out, matrix, key)
        return
    tiles_across = -(-matrix.shape[1] // TILE)
    for begin in range(0, matrix.shape[0], TILE):
        sums = _band_sums(matrix, begin, key)
        first = begin // TILE * tiles_across
        out[first : first + tiles_across].copy_(torch.from_numpy(sums.view(np.int64)))


def total(sums: torch.Tensor, nbytes: int, seed: int) -> int:
    """Return the checksum of a tensor of `nbytes` from its tile sums (or partial sums)."""
    return (int(sums.sum().item()) + length_term(nbytes, seed)) & MASK64


def checksums_on_cpu(raws: Sequence[torch.Tensor], seed: int) -> list[int]:
    """Return the checksum of each of many flat uint8 tensors; short ones share their weights, which is faster."""
    key = derive(seed, "checksum")
    most = max((-(-raw.numel() // 4) for raw in raws if raw.numel() <= 4 * CHUNK_WORDS), default=0)
    weights = _weights(key, 0, most) if most else np.empty(0, dtype=np.uint64)
    found = []
    for raw in raws:
        if raw.numel() <= 4 * CHUNK_WORDS:
            words = _words(raw.cpu().numpy())
            found.append((int(np.dot(words, weights[: len(words)])) + length_term(raw.numel(), seed)) & MASK64)
        else:
            found.append(checksum(raw, seed))
    return found


def text(value: int) -> str:
    """Return a checksum as it appears in reports: 16 hex digits."""
    return f"{value & MASK64:016x}"


def raw_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bytes of a tensor in row-major order as a flat uint8 tensor on its device (a view if contiguous)."""
    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise TypeError(f"only plain dense tensors have bytes to check, not {tensor.layout} {tensor.dtype}")
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
    if not plain.numel():
        return torch.empty(0, dtype=torch.uint8, device=tensor.device)
    # A single element may be "contiguous" with any stride, which `view` to another width refuses.
    return plain.as_strided((plain.numel(),), (1,)).view(torch.uint8)


def _aligned(raw: torch.Tensor) -> torch.Tensor:
    """Return `raw` at an address divisible by four (a slice of bytes may begin anywhere)."""
    return raw.clone() if raw.data_ptr() % 4 else raw


def _matrix(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor as rows of its last dimension."""
    plain = tensor.detach().resolve_conj().resolve_neg()
    if plain.dim() == 0:
        return plain.reshape(1, 1)
    columns = plain.shape[-1]
    return plain.reshape(plain.numel() // columns if columns else 0, columns)


def signed64(value: int) -> int:
    """Return a 64-bit value as the signed integer that an int64 tensor holds."""
    return value - (1 << 64) if value >> 63 else value


@lru_cache(maxsize=8)
def _weights(key: int, start: int, count: int) -> npt.NDArray[np.uint64]:
    """The weights of `count` words from `start` on; cached because a ballot checks one shape many times."""
    pieces = []
    for segment, low, piece in segments(start, count, CHUNK_WORDS):
        a, b = segment_keys(key, segment)
        mixed = counters(low, piece) * np.uint32(0x9E37_79B1) + np.uint32(a)
        mixed = (mixed ^ mixed >> np.uint32(15)) * np.uint32(0x85EB_CA6B)
        pieces.append((mixed ^ mixed >> np.uint32(16) ^ np.uint32(b) | np.uint32(1)).astype(np.uint64))
    weights = np.concatenate(pieces)
    weights.flags.writeable = False
    return weights


def _words(raw: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint64]:
    """The zero-padded little-endian 32-bit words of `raw`, plus one each, as 64-bit integers."""
    padded = np.pad(raw, (0, -len(raw) % 4)) if len(raw) % 4 else raw
    return np.frombuffer(padded.tobytes(), dtype="<u4").astype(np.uint64) + np.uint64(1)


def _sum_words(raw: npt.NDArray[np.uint8], key: int) -> int:
    """Sum (word + 1) * weight over all words of `raw`, modulo 2**64."""

    def add_up(begin: int) -> int:
        words = _words(raw[begin : begin + 4 * CHUNK_WORDS])
        return int(np.dot(words, _weights(key, begin // 4, len(words))))

    return sum(spread(add_up, range(0, len(raw), 4 * CHUNK_WORDS))) & MASK64


def _band_sums(matrix: torch.Tensor, begin: int, key: int) -> npt.NDArray[np.uint64]:
    """The tile sums of the rows `begin` … `begin` + TILE - 1 of a contiguous matrix."""
    size = matrix.element_size()
    row_bytes = matrix.shape[1] * size
    rows = min(TILE, matrix.shape[0] - begin)
    # Words may straddle the borders of the band: it owns those whose first byte lies in it.
    first_word = -(-begin * row_bytes // 4)
    after_word = -(-(begin + rows) * row_bytes // 4)
    if after_word == first_word:
        return np.zeros(-(-matrix.shape[1] // TILE), dtype=np.uint64)
    raw = raw_bytes(matrix)[4 * first_word : 4 * after_word].cpu().numpy()
    products = _words(raw) * _weights(key, first_word, after_word - first_word)
    prefix = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(products, dtype=np.uint64)])
    columns = np.arange(0, matrix.shape[1], TILE, dtype=np.int64) * size
    starts = (begin + np.arange(rows, dtype=np.int64))[:, None] * row_bytes + columns[None, :]
    bounds = np.append(-(-starts.ravel() // 4), after_word) - first_word
    sums: npt.NDArray[np.uint64] = np.diff(prefix[bounds]).reshape(rows, -1).sum(axis=0, dtype=np.uint64)
    return sums
