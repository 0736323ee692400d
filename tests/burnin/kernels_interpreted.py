"""Run by test_kernels.py in a process with TRITON_INTERPRET=1: the kernels against their definitions, without a GPU."""

from typing import Any

import torch
import triton
import triton.language as tl

from burnin import checksum, seed
from burnin.kernels import attention as attention_kernel
from burnin.kernels import checksum as checksum_kernel
from burnin.kernels import embedding as embedding_kernel
from burnin.kernels import fill, functions, gemm, units
from burnin.kernels import memory as memory_kernel
from burnin.keys import MASK64, derive
from burnin.words import RAW_BITS, signed32
from burnin.workloads import attention, embedding, integers, memory


def check_fill() -> None:
    """Every mode and dtype, across the border of two segments."""
    start = (1 << 32) - 1000
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int8, torch.int32, *fill.FP8):
        got, want = torch.empty(5000, dtype=dtype), torch.empty(5000, dtype=dtype)
        fill.launch(got, 99, start, 7)
        seed.fill_integers(want, 99, 7, start=start)
        assert torch.equal(got.view(torch.uint8), want.view(torch.uint8)), dtype
        if dtype.is_floating_point:
            fill.launch(got, 99, start, 0)
            seed.fill_normal(want, 99, start=start)
            assert torch.equal(got.view(torch.uint8), want.view(torch.uint8)), dtype
    words, raw = torch.empty(5000, dtype=torch.int32), torch.empty(5000, dtype=torch.int32)
    fill.launch(words, 99, 0, RAW_BITS)
    seed.fill_bits(raw, 99)
    assert torch.equal(words, raw)


@triton.jit
def round_to_fp8(  # noqa: PLR0917
    out: "Any",
    values: "Any",
    count: "Any",
    MANTISSA: tl.constexpr,  # noqa: N803
    BIAS: tl.constexpr,  # noqa: N803
    NEGATIVE_ZERO: tl.constexpr,  # noqa: N803
) -> None:
    lane = tl.arange(0, 512)
    rounded = fill.to_fp8(tl.load(values + lane, mask=lane < count), MANTISSA, BIAS, NEGATIVE_ZERO)
    tl.store(out + lane, rounded, mask=lane < count)


def check_fp8() -> None:
    """All numbers of each format, what lies halfway between two of them, and a little beside that."""
    for dtype, facts in fill.FP8.items():
        codes = torch.arange(128, dtype=torch.uint8).view(dtype).to(torch.float32)
        codes = codes[codes.isfinite()]
        half = (codes[1:] + codes[:-1]) / 2
        beside = [half.nextafter(half + toward) for toward in (-1, 1)]
        for positive in (codes, half, *beside):
            values = torch.cat([positive, -positive])
            out = torch.empty(len(values), dtype=torch.uint8)
            round_to_fp8[(1,)](out, values, len(values), *facts)
            assert torch.equal(out, values.to(dtype).view(torch.uint8)), dtype


def check_checksums() -> None:
    """Flat and tiled, with tails, unaligned rows and whole tiles."""
    for size in (0, 1, 3, 4, 5, 8191 * 4, 16384 * 4 * 9 + 2):
        raw = torch.empty(size, dtype=torch.uint8)
        seed.fill_bits(raw, 4)
        slot = torch.full((1,), -1, dtype=torch.int64)
        checksum_kernel.launch_flat(slot, raw, derive(3, "checksum"), checksum.length_term(size, 3))
        assert int(slot) & MASK64 == checksum.checksum(raw, 3), size
    shapes = [(129, 77), (256, 384), (3, 5), (1000, 1), (130, 257), (1, 1)]
    for shape in shapes:
        for dtype in (torch.uint8, torch.bfloat16, torch.float32, torch.float64):
            matrix = torch.empty(shape, dtype=dtype)
            seed.fill_bits(matrix, 5)
            sums = torch.full((checksum.tile_count(matrix),), -1, dtype=torch.int64)
            checksum_kernel.launch_tiles(sums, matrix, derive(3, "checksum"))
            assert torch.equal(sums, checksum.tile_sums(matrix, 3)), (shape, dtype)


def check_gemm() -> None:
    """Exact integers; bf16 is left out because the interpreter multiplies its raw bits."""
    for dtype, magnitude in (
        (torch.float16, 45),
        (torch.float32, 100),
        (torch.int8, 127),
        (torch.float8_e4m3fn, 8),
        (torch.float8_e5m2, 4),
    ):
        a, bt = torch.empty(130, 77, dtype=dtype), torch.empty(65, 77, dtype=dtype)
        seed.fill_integers(a, 1, magnitude)
        seed.fill_integers(bt, 2, magnitude)
        out = torch.full((130, 65), -1, dtype=torch.int32 if dtype is torch.int8 else torch.float32)
        gemm.launch(a, bt, out)
        assert torch.equal(out.to(torch.float64), a.to(torch.float64) @ bt.to(torch.float64).t()), dtype


def check_units() -> None:
    """One tile in every program, by matrix units and by multiply-adds."""
    for dtype, plain in ((torch.float16, False), (torch.int8, False), (torch.float32, True), (torch.int32, True)):
        a, bt = torch.empty(32, 128, dtype=dtype), torch.empty(32, 128, dtype=dtype)
        seed.fill_integers(a, 1, 45)
        seed.fill_integers(bt, 2, 45)
        out = torch.full((6 * 32, 32), -1, dtype=torch.float32 if dtype.is_floating_point else torch.int32)
        where = torch.full((6,), -1, dtype=torch.int32)
        units.launch(a, bt, out, where, plain=plain, precision="ieee", unit="")
        right = a.to(torch.float64) @ bt.to(torch.float64).t()
        assert torch.equal(out.to(torch.float64), right.repeat(6, 1)), dtype
        assert where.tolist() == [0, 1, 2, 3, 0, 1]


def check_functions() -> None:
    """Special functions within a few units of the last place of torch's; integers and sums bit by bit."""
    x = torch.empty(3000, dtype=torch.float32)
    seed.fill_normal(x, 7)
    right = {
        "exp2": torch.exp2(x), "log2": torch.log2(x.abs()), "rcp": 1 / x, "rsqrt": torch.rsqrt(x.abs()),
        "sin": torch.sin(x), "tanh": torch.tanh(x), "erf": torch.erf(x),
    }  # fmt: skip
    for name, value in right.items():
        got = torch.full_like(x, float("nan"))
        functions.launch_special(got, x, name)
        torch.testing.assert_close(got, value, rtol=1e-5, atol=1e-6)
    words = torch.empty(3000, dtype=torch.int32)
    seed.fill_bits(words, 8)
    outputs = [torch.full((3000,), -1, dtype=d) for d in (torch.int32, torch.int32, torch.int64, torch.int32)]
    functions.launch_integers(tuple(outputs), words, integers.ROUNDS)
    for got, (name, value) in zip(outputs, integers.computed(words).items(), strict=True):
        assert torch.equal(got, value), name
    for dtype in (torch.int32, torch.int64, torch.float32):
        matrix, sums = torch.empty(130, 150, dtype=dtype), torch.empty(150, dtype=dtype)
        seed.fill_integers(matrix, 9, 200)
        functions.launch_atomic_sums(sums, matrix)
        assert torch.equal(sums, matrix.sum(dim=0).to(dtype)), dtype


def check_embedding() -> None:
    """Both laws, both dtypes: the kernels add in the order of the definition."""
    size = embedding.SIZE_CPU
    for law in ("uniform", "zipf"):
        for dtype in (torch.float32, torch.float16):
            table = torch.empty(size.tables * size.rows, size.width, dtype=dtype)
            gradient = torch.empty(size.tables * size.bags, size.width, dtype=dtype)
            seed.fill_normal(table, 1)
            seed.fill_normal(gradient, 2)
            drawn = embedding.bags(size, law, 3, table.device)
            sums = torch.full((len(drawn.indices), size.width), -1.0)
            embedding_kernel.launch_gather(sums, table, drawn.indices)
            assert torch.equal(sums, embedding.gather(table, drawn))
            scattered = torch.full((len(drawn.touched), size.width), -1.0)
            embedding_kernel.launch_scatter(scattered, gradient, drawn.starts, drawn.order)
            torch.testing.assert_close(scattered, embedding.scatter(gradient, drawn))


def check_attention() -> None:
    """Within the rounding of fp16 of the float64 reference; lengths that fill no block, and of a single token."""
    assert attention.BLOCK == attention_kernel.BLOCK
    lengths = (70, 1, 64, 3)
    inputs = [torch.empty(sum(lengths), 2, 16, dtype=torch.float16) for _ in range(4)]
    for number, one in enumerate(inputs):
        seed.fill_normal(one, number)
    outputs = [torch.full(inputs[0].shape, float("nan")) for _ in range(4)]
    lse = torch.full(inputs[0].shape[:2], float("nan"))
    attention_kernel.launch(tuple(inputs), tuple(outputs), lse, *attention.layout(lengths))
    right = attention.attend(tuple(inputs), lengths, torch.float64)
    for name, got, value in zip(("o", "dq", "dk", "dv"), outputs, right, strict=True):
        torch.testing.assert_close(got.double(), value, rtol=1e-2, atol=1e-2, msg=lambda m, name=name: f"{name}: {m}")


def check_memory() -> None:
    """Every pattern is what numpy says; checks count, find the lowest, invert, in both directions."""
    for pattern in (memory.ADDRESS, memory.CONSTANT, memory.SPACED, memory.RANDOM):
        key, phase = 0xDEADBEEF, 7
        words = torch.zeros(20_000, dtype=torch.int32)
        memory_kernel.launch_write(words, signed32(key), pattern, phase)
        right = torch.from_numpy(memory.words(key, pattern, phase, 0, len(words)).view("int32"))
        assert torch.equal(words, right), pattern
        words[15_000] ^= 4
        words[9_001] ^= 1 << 30
        for down, flip in ((False, 0), (True, -1)):
            found = torch.tensor([1, memory.NONE])
            memory_kernel.launch_check(found, words, signed32(key), pattern, phase, flip=flip, invert=True, down=down)
            assert found.tolist() == [3, 9_001], (pattern, down)  # an inversion keeps what is wrong
        right[15_000] ^= 4
        right[9_001] ^= 1 << 30
        assert torch.equal(words, right), pattern


if __name__ == "__main__":
    torch.set_num_threads(1)
    check_fill()
    check_fp8()
    check_checksums()
    check_gemm()
    check_units()
    check_functions()
    check_embedding()
    check_attention()
    check_memory()
