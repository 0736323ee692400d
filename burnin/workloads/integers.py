"""`int`: integer units, compared with the CPU bit by bit.

Of each random word: 64 rounds of SHA-256's compression (its rotations, choice and majority, with counted constants),
its CRC-32C, 64 steps of a 64-bit linear congruential generator (Knuth's MMIX multiplier), and the set bits of the last.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch

from burnin.kernels import have_triton, integers_on_device
from burnin.keys import derive
from burnin.seed import fill_bits
from burnin.words import Words
from burnin.workloads import Context, MissingError
from burnin.workloads.recipes import Prepared, Recipe, Recipes

ROUNDS = 64
COUNT_CUDA, COUNT_CPU = 1 << 20, 1 << 12
_INITIAL = (
    *(0x6A09_E667, 0xBB67_AE85, 0x3C6E_F372, 0xA54F_F53A),
    *(0x510E_527F, 0x9B05_688C, 0x1F83_D9AB, 0x5BE0_CD19),
)
"""SHA-256's initial state (FIPS 180-4, 5.3.3)."""
_CASTAGNOLI = 0x82F6_3B78
"""CRC-32C's polynomial, reflected (RFC 3720, B.4)."""
_MULTIPLIER, _INCREMENT = 6_364_136_223_846_793_005, 1_442_695_040_888_963_407


class Integers(Recipes):
    """See the module."""

    test = "int"

    def recipes(self, ctx: Context) -> tuple[Recipe, ...]:
        """The one recipe; see `burnin.workloads.recipes`."""
        if ctx.device.type == "cuda" and not have_triton():
            raise MissingError("triton is not installed; the test consists of a kernel of our own")
        return (Recipe(name="sha crc mad popcount", dtype="int32", exact=True, prepare=_prepare),)


def _prepare(ctx: Context, seed: int) -> Prepared:
    words = torch.empty(COUNT_CUDA if ctx.backend == "cuda" else COUNT_CPU, dtype=torch.int32, device=ctx.device)
    fill_bits(words, derive(seed, "int"))
    dtypes = {"sha": torch.int32, "crc": torch.int32, "mad": torch.int64, "popcount": torch.int32}
    outputs = {name: torch.empty(len(words) // 64, 64, dtype=d, device=ctx.device) for name, d in dtypes.items()}

    def truth() -> dict[str, torch.Tensor]:
        return {name: value.view(-1, 64) for name, value in computed(words.cpu()).items()}

    def on_cpu() -> None:
        for name, value in truth().items():
            outputs[name].copy_(value)

    def on_device() -> None:
        integers_on_device(tuple(output.view(-1) for output in outputs.values()), words, ROUNDS)

    launch: Callable[[], None] = on_device if ctx.device.type == "cuda" else on_cpu
    return Prepared(outputs=outputs, launch=launch, truth=truth)


def computed(words: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return the functions of int32 words on the CPU: the definition, in numpy."""
    word = words.numpy().view(np.uint32)
    wide = word.astype(np.uint64) << np.uint64(32) | word.astype(np.uint64)
    with np.errstate(over="ignore"):
        for _ in range(ROUNDS):
            wide = wide * np.uint64(_MULTIPLIER) + np.uint64(_INCREMENT)
    return {
        "sha": torch.from_numpy(_sha(word).view(np.int32)),
        "crc": torch.from_numpy(_crc(word).view(np.int32)),
        "mad": torch.from_numpy(wide.view(np.int64)),
        "popcount": torch.from_numpy(_ones(wide)),
    }


def _rotate(word: Words, by: int) -> Words:
    turned: Words = word >> np.uint32(by) | word << np.uint32(32 - by)
    return turned


def _sha(word: Words) -> Words:
    a, b, c, d, e, f, g, h = (word ^ np.uint32(initial) for initial in _INITIAL)
    for number in range(ROUNDS):
        constant = np.uint32((number + 1) * 0x9E37_79B9 & 0xFFFF_FFFF)
        first = h + (_rotate(e, 6) ^ _rotate(e, 11) ^ _rotate(e, 25)) + (e & f ^ ~e & g) + constant + word
        second = (_rotate(a, 2) ^ _rotate(a, 13) ^ _rotate(a, 22)) + (a & b ^ a & c ^ b & c)
        a, b, c, d, e, f, g, h = first + second, a, b, c, d + first, e, f, g
    mixed: Words = a ^ b ^ c ^ d ^ e ^ f ^ g ^ h
    return mixed


def _crc(word: Words) -> Words:
    remainder = ~word
    for _ in range(32):
        remainder = remainder >> np.uint32(1) ^ (remainder & np.uint32(1)) * np.uint32(_CASTAGNOLI)
    result: Words = ~remainder
    return result


def _ones(wide: npt.NDArray[np.uint64]) -> npt.NDArray[np.int32]:
    bits = np.unpackbits(wide.view(np.uint8).reshape(-1, 8), axis=1)
    counted: npt.NDArray[np.int32] = bits.sum(axis=1, dtype=np.int32)
    return counted
