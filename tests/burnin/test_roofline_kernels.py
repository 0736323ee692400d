"""Which kernels the library is taken to have for a product, and that what is expected says so."""

from dataclasses import replace

import pytest

from burnin.parts import shelf
from burnin.parts.part import Part
from burnin.roofline.gemm import expect
from burnin.roofline.kernels import SPLITS, Gemm, reach
from tests.burnin.roofline_parts import OLDER, complete

FULL = complete()


def product(m: int, n: int, k: int, dtype: str = "bf16", output_bytes: int = 2) -> Gemm:
    return Gemm(m=m, n=n, k=k, dtype=dtype, output_bytes=output_bytes)


def without_older(part: Part = FULL) -> Part:
    assert part.fitted is not None
    return replace(part, fitted=replace(part.fitted, older=None))


@pytest.mark.parametrize(
    ("gemm", "aligned"),
    [
        (product(1023, 4096, 4096), 16),  # the number of rows aligns nothing
        (product(4096, 4096, 4100), 8),
        (product(4096, 4098, 4096), 4),
        (product(4096, 4096, 4097), 2),
        (product(4096, 4097, 4096), 2),
        (product(4096, 4097, 4096, output_bytes=4), 4),
        (product(4096, 4096, 4100, "fp8e4m3"), 4),
        (product(4096, 4096, 4097, "fp64", 8), 8),
    ],
)
def test_rows_of_operands_and_result_decide_the_alignment(gemm: Gemm, aligned: int) -> None:
    assert gemm.aligned_bytes == aligned
    within = reach(FULL, gemm)
    assert (within.kernels == "the newest kernels") == (aligned == 16)
    assert aligned == 16 or f"rows are aligned to {aligned} bytes, not 16" in within.kernels


def test_older_kernels_do_not_split_and_have_their_own_tiles_and_rate() -> None:
    assert FULL.fitted is not None
    newest, old = reach(FULL, product(128, 8192, 8192)), reach(FULL, product(128, 8192, 8193))
    assert (newest.tiles, newest.splits, newest.family_share) == (FULL.tiles, SPLITS, 1.0)
    assert (old.tiles, old.splits) == (OLDER.tiles, (1,))
    assert old.family_share == pytest.approx(OLDER.share * FULL.fitted.unaligned[2])
    assert expect(FULL, product(128, 8192, 8192)).split > 1
    told = expect(FULL, product(128, 8192, 8193))
    assert told.split == 1
    assert told.tile in OLDER.tiles


def test_a_result_with_unaligned_rows_is_stored_piecemeal_by_older_kernels() -> None:
    whole, narrow = (reach(FULL, product(2048, n, 1001)).tile_clocks for n in (2048, 2052))
    assert narrow - whole == OLDER.store_clocks
    assert reach(FULL, product(2048, 2052, 1001, "int8", 4)).tile_clocks == OLDER.tile_clocks  # 4 bytes x 4
    slow, fast = (expect(FULL, product(2048, n, 1001)).seconds for n in (2044, 2048))
    assert slow > fast


def test_a_dtype_without_newer_kernels_is_expected_less_of_and_says_why() -> None:
    told = expect(FULL, product(256, 256, 65536, "int8", 4))
    assert told.kernels == "older kernels: the library has no others for int8"
    assert any(told.kernels in step.what for step in told.steps)
    assert told.split == 1
    newer = expect(without_older(), product(256, 256, 65536, "int8", 4))
    assert newer.kernels == "the newest kernels"
    assert newer.split > 1
    assert newer.seconds < 0.2 * told.seconds  # four units of 132, and each slower


def test_where_the_families_were_never_told_apart_alignment_still_costs() -> None:
    part = without_older()
    assert part.fitted is not None
    within = reach(part, product(4096, 4096, 4097))
    assert (within.tiles, within.splits, within.family_share) == (part.tiles, SPLITS, part.fitted.unaligned[2])
    assert "rows are aligned to 2 bytes" in within.kernels


def test_of_an_unmeasured_part_nothing_holds_the_library_back() -> None:
    part = shelf.load("h100")
    within = reach(part, product(4095, 4095, 4095, "int8", 4))
    assert (within.tiles, within.family_share, within.share) == (part.tiles, 1.0, 1.0)
    assert within.cache_bytes == part.l2_bytes


def test_what_fits_into_the_half_of_a_cache_that_helps_is_read_from_it() -> None:
    """Of a cache of 50 MB half helps: a layer of 52 MB comes from memory each time, one of 17 MB does not."""
    assert FULL.fitted is not None
    whole = replace(FULL, fitted=replace(FULL.fitted, cache_share=None))
    small, large = product(16, 4096, 2048), product(16, 5120, 5120)
    assert expect(FULL, small).seconds == pytest.approx(expect(whole, small).seconds)
    assert expect(FULL, large).seconds > 1.3 * expect(whole, large).seconds
    assert expect(FULL, large).bound == "device memory"
