"""On a real GPU: the Triton kernels give exactly what the CPU computes."""

import random

import pytest
import torch

from burnin import checksum as cs
from burnin.keys import MASK64
from burnin.seed import fill_bits, fill_integers, fill_normal

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]

DTYPES = (
    torch.bfloat16,
    torch.float16,
    torch.float32,
    torch.float64,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.int8,
    torch.uint8,
    torch.int32,
    torch.int64,
    torch.bool,
    torch.complex64,
)


def random_tensor(rng: random.Random, number: int) -> torch.Tensor:
    """Random bits (NaN payloads, infinities, subnormals) in a random shape, odd byte counts included."""
    dtype = DTYPES[number % len(DTYPES)]
    shape = [rng.choice((1, 2, 3, 5, 31, 64, 129, 300)) for _ in range(rng.randint(1, 3))]
    if number % 10 == 0:
        shape[0] = 0
    tensor = torch.zeros(shape, dtype=torch.uint8 if dtype is torch.bool else dtype)
    fill_bits(tensor, rng.getrandbits(64))
    return (tensor & 1).to(torch.bool) if dtype is torch.bool else tensor


@pytest.mark.parametrize("number", range(200))
def test_the_gpu_value_is_the_cpu_value(number: int) -> None:
    rng = random.Random(number)  # noqa: S311 - shapes, no secrets
    tensor = random_tensor(rng, number)
    on_gpu = tensor.cuda()
    if number % 3 == 0 and tensor.dim() > 1:
        tensor, on_gpu = tensor.transpose(0, -1), on_gpu.transpose(0, -1)
    seed = rng.getrandbits(64)
    want = cs.checksum(tensor, seed)
    assert cs.checksum(on_gpu, seed) == want
    assert torch.equal(cs.tile_sums(on_gpu, seed).cpu(), cs.tile_sums(tensor, seed))
    assert cs.total(cs.tile_sums(on_gpu, seed), tensor.nbytes, seed) == want


@pytest.mark.parametrize("offset", [1, 2, 3, 5])
def test_bytes_at_any_address(offset: int) -> None:
    raw = torch.empty(100_003, dtype=torch.uint8)
    fill_bits(raw, 1)
    assert cs.checksum(raw.cuda()[offset:], 9) == cs.checksum(raw[offset:], 9)


def test_large_matrices_and_the_border_between_segments() -> None:
    matrix = torch.empty(8192, 4097, dtype=torch.bfloat16)
    fill_bits(matrix, 2)
    assert cs.checksum(matrix.cuda(), 3) == cs.checksum(matrix, 3)
    assert torch.equal(cs.tile_sums(matrix.cuda(), 3).cpu(), cs.tile_sums(matrix, 3))
    words = (1 << 32) + 5000
    if torch.cuda.mem_get_info()[0] < 5 * words:
        pytest.skip("needs 22 GB of free GPU memory")
    long = torch.zeros(4 * words + 3, dtype=torch.uint8, device="cuda")
    tail = torch.empty(40_003, dtype=torch.uint8)
    fill_bits(tail, 4)
    long[-len(tail) :] = tail.cuda()
    zeros = cs.checksum(long[: 1 << 34], 5)
    # The first segment is all zero, so its sum does not depend on the data; the rest is computed from the definition.
    both = cs.checksum(long, 5)
    rest = sum_from(long[1 << 34 :].cpu(), 1 << 32, 5)
    assert both == (zeros - cs.length_term(1 << 34, 5) + rest + cs.length_term(len(long), 5)) & MASK64


def sum_from(raw: torch.Tensor, first_word: int, seed: int) -> int:
    words = cs._words(raw.numpy())
    return sum(
        int(w) * int(m)
        for w, m in zip(words, cs._weights(cs.derive(seed, "checksum"), first_word, len(words)), strict=True)
    )


def test_slots_are_filled_without_reading_them() -> None:
    tensors = [torch.empty(1000 + number, dtype=torch.uint8) for number in range(5)]
    slots = torch.full((5,), -1, dtype=torch.int64, device="cuda")
    for number, tensor in enumerate(tensors):
        fill_bits(tensor, number)
        cs.checksum_into(slots[number : number + 1], tensor.cuda(), 8)
    assert [value & MASK64 for value in slots.tolist()] == [cs.checksum(tensor, 8) for tensor in tensors]


@pytest.mark.parametrize(
    "dtype",
    [torch.bfloat16, torch.float16, torch.float32, torch.float8_e4m3fn, torch.float8_e5m2, torch.float64],
)
def test_inputs_have_the_same_bits(dtype: torch.dtype) -> None:
    start = (1 << 32) - 40_000
    for fill in (fill_normal, lambda out, key, start: fill_integers(out, key, 7, start=start)):
        cpu, gpu = torch.empty(100_001, dtype=dtype), torch.empty(100_001, dtype=dtype, device="cuda")
        fill(cpu, 77, start=start)
        fill(gpu, 77, start=start)
        assert torch.equal(gpu.cpu().view(torch.uint8), cpu.view(torch.uint8))
    raw_cpu, raw_gpu = torch.empty(999, dtype=torch.uint8), torch.empty(999, dtype=torch.uint8, device="cuda")
    fill_bits(raw_cpu, 5)
    fill_bits(raw_gpu, 5)
    assert torch.equal(raw_gpu.cpu(), raw_cpu)
