import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from burnin import checksum as cs
from burnin.keys import MASK64, derive
from burnin.seed import fill_bits
from burnin.words import MASK32, segment_keys

BYTES = torch.uint8


def reference(raw: bytes, seed: int) -> int:
    """The definition in plain Python, one word at a time."""
    total = derive(seed, "length", len(raw))
    padded = raw + bytes(-len(raw) % 4)
    for i in range(len(padded) // 4):
        word = int.from_bytes(padded[4 * i : 4 * i + 4], "little")
        a, b = segment_keys(derive(seed, "checksum"), i >> 32)
        x = (i * 0x9E3779B1 + a) & MASK32
        y = ((x ^ x >> 15) * 0x85EBCA6B) & MASK32
        total += (word + 1) * ((y ^ y >> 16 ^ b) | 1)
    return total & MASK64


def tensor_of(raw: bytes) -> torch.Tensor:
    return torch.tensor(list(raw), dtype=BYTES)


@settings(deadline=None, max_examples=60)
@given(st.binary(max_size=200), st.integers(min_value=-(2**70), max_value=2**70))
def test_equals_the_definition(raw: bytes, seed: int) -> None:
    assert cs.checksum(tensor_of(raw), seed) == reference(raw, seed)


FROZEN = {
    # (what, seed) -> value: reports of different versions are compared, so a change here is a new report schema.
    ("empty", 0): "871e00ac9266babf",
    ("zero word", 0): "1849a9b3d49f38a9",
    ("zero word", 1): "2b5981643d949ae7",
    ("abc", 0): "79a7719e13cccf6d",
    ("bf16 ramp", 7): "920bea06327d2fd2",
    ("fp32 nan", 7): "5482e87b2b0e4536",
    ("random 1e5 bytes", 7): "994f0e984917460a",
}


def frozen_input(what: str) -> torch.Tensor:
    random = torch.empty(100_001, dtype=BYTES)
    fill_bits(random, 3)
    return {
        "empty": torch.empty(0),
        "zero word": torch.zeros(1),
        "abc": tensor_of(b"abc"),
        "bf16 ramp": torch.arange(100, dtype=torch.bfloat16).view(10, 10),
        "fp32 nan": torch.tensor([float("nan"), 1.0, float("-inf")]),
        "random 1e5 bytes": random,
    }[what]


@pytest.mark.parametrize(("what", "seed"), FROZEN)
def test_values_never_change(what: str, seed: int) -> None:
    assert cs.text(cs.checksum(frozen_input(what), seed)) == FROZEN[what, seed]


def test_every_change_of_one_word_is_seen() -> None:
    words = torch.empty(16, dtype=torch.int32)
    fill_bits(words, 1)
    good = cs.checksum(words, 5)
    for position, bit in itertools.product(range(16), range(32)):
        changed = words.clone()
        changed[position] ^= -(1 << 31) if bit == 31 else 1 << bit
        assert cs.checksum(changed, 5) != good


@pytest.mark.parametrize("count", [2, 4, 6, 8])
@pytest.mark.parametrize("pattern", [0, -1, 0x5555_5555, None])
def test_every_even_count_of_equal_flips_is_seen(count: int, pattern: int | None) -> None:
    words = torch.empty(10, dtype=torch.int32)
    fill_bits(words, 2)
    if pattern is not None:
        words.fill_(pattern)
    good = cs.checksum(words, 5)
    for positions in itertools.combinations(range(10), count):
        for bit in range(32):
            changed = words.clone()
            changed[list(positions)] ^= -(1 << 31) if bit == 31 else 1 << bit
            assert cs.checksum(changed, 5) != good, (positions, bit)


def test_every_permutation_of_distinct_words_is_seen() -> None:
    words = torch.arange(7, dtype=torch.int32)
    seen = {cs.checksum(words[list(order)], 5) for order in itertools.permutations(range(7))}
    assert len(seen) == 5040


def test_nan_payloads_zero_signs_and_lengths_matter() -> None:
    quiet = torch.tensor([0x7FC0_0000, 0x7FC0_0001, -0x0040_0000, 0, -(1 << 31)], dtype=torch.int32).view(torch.float32)
    assert len({cs.checksum(value, 5) for value in quiet}) == 5
    assert len({cs.checksum(torch.zeros(size, dtype=BYTES), 5) for size in range(40)}) == 40


def test_the_seed_matters_modulo_64_bits() -> None:
    value = torch.ones(3)
    assert len({cs.checksum(value, seed) for seed in range(50)}) == 50
    assert cs.checksum(value, 1) == cs.checksum(value, 1 + 2**64)


@pytest.mark.parametrize(
    "dtype",
    [torch.bool, torch.complex64, torch.float8_e4m3fn, torch.float8_e5m2, torch.bfloat16, torch.float64, torch.int8],
)
def test_any_dtype_and_strides_mean_bytes_in_row_major_order(dtype: torch.dtype) -> None:
    raw = torch.empty(12 * 7 * dtype.itemsize, dtype=BYTES)
    fill_bits(raw, 4)
    if dtype is torch.bool:
        raw &= 1
    matrix = raw.view(dtype).view(12, 7)
    assert cs.checksum(matrix, 5) == cs.checksum(raw, 5)
    column = matrix.t()
    assert cs.checksum(column, 5) == cs.checksum(column.contiguous(), 5) != cs.checksum(matrix, 5)
    assert cs.checksum(matrix[::2, 1:], 5) == cs.checksum(matrix[::2, 1:].contiguous(), 5)
    assert cs.checksum(matrix[3, 4], 5) == cs.checksum(matrix[3:4, 4].clone(), 5)


def test_a_conjugate_view_has_the_bytes_of_its_values() -> None:
    value = torch.tensor([1 + 2j, 3 - 4j])
    assert cs.checksum(value.conj(), 5) == cs.checksum(torch.tensor([1 - 2j, 3 + 4j]), 5)


def test_sparse_tensors_are_refused() -> None:
    with pytest.raises(TypeError, match="dense"):
        cs.checksum(torch.eye(3).to_sparse(), 5)


@pytest.mark.parametrize("shape", [(256, 320), (129, 77), (1, 5), (1000, 1), (130, 257), (3, 2, 150), (0, 4), (7,)])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.bfloat16, torch.float32, torch.float64])
def test_tile_sums_add_up_to_the_checksum(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    matrix = torch.empty(shape, dtype=dtype)
    fill_bits(matrix, 6)
    sums = cs.tile_sums(matrix, 5)
    assert sums.shape == (cs.tile_count(matrix),)
    assert cs.total(sums, matrix.nbytes, 5) == cs.checksum(matrix, 5)


def test_a_tile_sum_names_the_tile() -> None:
    matrix = torch.zeros(300, 400, dtype=torch.bfloat16)
    good = cs.tile_sums(matrix, 5)
    matrix[200, 390] = 1
    assert (cs.tile_sums(matrix, 5) != good).nonzero().flatten().tolist() == [1 * 4 + 3]


def test_slots_hold_the_value_as_signed_integers() -> None:
    slots = torch.full((20,), -1, dtype=torch.int64)
    values = [torch.full((5,), float(number)) for number in range(20)]
    for number, value in enumerate(values):
        cs.checksum_into(slots[number : number + 1], value, 5)
    assert [slot & MASK64 for slot in slots.tolist()] == [cs.checksum(value, 5) for value in values]
    with pytest.raises(TypeError, match="int64"):
        cs.checksum_into(torch.zeros(1), values[0], 5)
    with pytest.raises(TypeError, match="tiles"):
        cs.tile_sums_into(slots, values[0], 5)


def test_weights_of_the_second_segment_differ() -> None:
    key = derive(5, "checksum")
    assert segment_keys(key, 0) != segment_keys(key, 1)
    across = cs._weights(key, (1 << 32) - 2, 4).tolist()
    assert across[:2] == cs._weights(key, (1 << 32) - 2, 2).tolist()
    assert across[2:] == cs._weights(key, 1 << 32, 2).tolist()
    assert all(weight % 2 for weight in across)
