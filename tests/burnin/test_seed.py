import pytest
import torch

from burnin.keys import derive
from burnin.seed import fill_bits, fill_integers, fill_normal, random_words
from burnin.words import MASK32, mix32, segment_keys, signed32


def mix_reference(word: int) -> int:
    word ^= word >> 16
    word = word * 0x85EBCA6B & MASK32
    word ^= word >> 13
    word = word * 0xC2B2AE35 & MASK32
    return word ^ word >> 16


def test_words_are_those_of_the_definition() -> None:
    key, start = 0x0123_4567_89AB_CDEF, (1 << 32) - 3
    words = random_words(key, start, 6)
    for offset, word in enumerate(words.tolist()):
        segment, low = divmod(start + offset, 1 << 32)
        a, b = segment_keys(key, segment)
        assert word == mix_reference(mix_reference(low ^ a) + b & MASK32)


def test_segment_keys_are_those_of_the_definition() -> None:
    mixed = mix_reference(1 ^ 0x9E3779B9)
    assert segment_keys((7 << 32) | 5, 1) == (mix_reference(5 ^ mixed), mix_reference(7 + mixed & MASK32))


def test_mixing_is_a_bijection_on_a_sample() -> None:
    sample = random_words(1, 0, 1000)
    assert len(set(mix32(sample).tolist())) == len(set(random_words(1, 0, 1000).tolist()))


def test_keys_depend_on_every_name_in_order() -> None:
    keys = {
        derive(1),
        derive(2),
        derive(1, "a"),
        derive(1, "a", "b"),
        derive(1, "b", "a"),
        derive(1, "ab"),
        derive(1, "a", 0),
    }
    assert len(keys) == 7
    assert derive(1, "a") == derive(1 + 2**64, "a")


@pytest.mark.parametrize("fill", [fill_normal, lambda out, key, start=0: fill_integers(out, key, 9, start=start)])
def test_a_slice_is_the_slice_of_the_whole(fill) -> None:  # noqa: ANN001
    whole, part = torch.empty(70_000), torch.empty(1_000)
    fill(whole, 11)
    fill(part, 11, start=65_000)
    assert torch.equal(part, whole[65_000:66_000])


@pytest.mark.parametrize(
    "dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.int8, torch.int32]
)
def test_integers_are_the_same_in_every_dtype(dtype: torch.dtype) -> None:
    values, others = torch.empty(10_000), torch.empty(10_000, dtype=dtype)
    fill_integers(values, 3, 45)
    fill_integers(others, 3, 45)
    assert torch.equal(values, others.to(torch.float32))
    assert sorted(set(values.tolist())) == list(range(-45, 46))
    assert abs(float(values.mean())) < 1


def test_normal_values_spread_over_mantissa_and_exponents() -> None:
    values = torch.empty(50_000)
    fill_normal(values, 3)
    assert abs(float(values.mean())) < 0.02
    assert 0.9 < float(values.std()) < 1.1
    assert float(values.abs().max()) < 4
    bits = values.view(torch.int32)
    ones = [float((bits >> bit & 1).to(torch.float32).mean()) for bit in range(23)]
    # Small values have zeros at the end, so the last bits are set in few elements; but all are used.
    assert all(0.01 < share < 0.75 for share in ones)
    assert all(share > 0.4 for share in ones[4:])
    assert len(set((bits >> 23 & 255).tolist())) > 15


def test_rounded_dtypes_are_torch_roundings_of_float32() -> None:
    values = torch.empty(5_000)
    fill_normal(values, 3)
    for dtype in (torch.bfloat16, torch.float16, torch.float8_e4m3fn):
        rounded = torch.empty(5_000, dtype=dtype)
        fill_normal(rounded, 3)
        assert torch.equal(rounded.view(torch.uint8), values.to(dtype).view(torch.uint8))


@pytest.mark.parametrize("size", [0, 1, 3, 4, 5, 70_001 * 4 + 2])
def test_raw_bits_are_the_words_cut_to_size(size: int) -> None:
    raw = torch.empty(size, dtype=torch.uint8)
    fill_bits(raw, 3)
    assert raw.numpy().tobytes() == random_words(3, 0, size // 4 + 1).tobytes()[:size]


def test_what_cannot_be_filled_is_refused() -> None:
    with pytest.raises(ValueError, match="magnitude 0"):
        fill_integers(torch.empty(3), 1, 0)
    with pytest.raises(ValueError, match="contiguous"):
        fill_integers(torch.empty(3, 4).t(), 1, 5)
    with pytest.raises(ValueError, match="floats"):
        fill_normal(torch.empty(3, dtype=torch.int8), 1)


def test_launch_arguments_fit_32_bits() -> None:
    assert [signed32(word) for word in (0, 1, 2**31, MASK32, 2**40 + 5)] == [0, 1, -(2**31), -1, 5]
