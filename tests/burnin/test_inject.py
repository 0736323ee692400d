import itertools
from collections.abc import Callable

import pytest
import torch

from burnin.inject import FAULTS, TILE, Injector, Scene, check, scene, stale_byte
from burnin.seed import fill_normal
from burnin.spec import Case, Inject, SpecError
from burnin.workloads import Context
from burnin.workloads.launches import launch_all

SEEDS = range(12)
CONDITIONAL = {"F02", "F08.hot"}
"""Models that do not strike every launch by their nature."""
MASKED = {"F11.holes", "F14", "F14.coupled", "F14.retention"}
"""Models whose value may be what the data hold anyway."""
ALWAYS = [name for name in FAULTS if name not in CONDITIONAL | MASKED - {"F11.holes"}]


def inject(fault: str, *, rate: float = 1.0, seed: int = 1) -> Inject:
    return Inject(gpu=0, fault=fault, rate=rate, seed=seed)


def output(dtype: torch.dtype = torch.float32, rows: int = 300, columns: int = 280) -> torch.Tensor:
    values = torch.empty(rows, columns)
    fill_normal(values, 7)
    return (values * 1000).to(dtype)


def struck(fault: str, seed: int, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor, Injector]:
    before = output(dtype)
    after = before.clone()
    injector = Injector(inject(fault, seed=seed))
    fired = injector.hit(after)
    changed = not torch.equal(before.view(torch.uint8), after.view(torch.uint8))
    assert fired == changed == (injector.fired == 1)
    return before, after, injector


def word_flips(before: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
    return (before.view(torch.int32) ^ after.view(torch.int32)).flatten()


def bits_of(flips: torch.Tensor) -> set[int]:
    return {bit for word in flips[flips != 0].unique().tolist() for bit in range(32) if word >> bit & 1}


@pytest.mark.parametrize("fault", ALWAYS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_every_persistent_fault_changes_a_float_output_the_same_way_at_every_launch(
    fault: str, dtype: torch.dtype
) -> None:
    for seed in SEEDS:
        before, after, injector = struck(fault, seed, dtype)
        again = before.clone()
        assert injector.hit(again)
        assert torch.equal(again.view(torch.uint8), after.view(torch.uint8))


@pytest.mark.parametrize("fault", [n for n, f in FAULTS.items() if not f.floats_only and n not in CONDITIONAL])
def test_every_fault_changes_an_integer_output(fault: str) -> None:
    # A hole may fall on an integer that is zero already; what is not masked always changes something.
    fired = [struck(fault, seed, torch.int32)[2].fired for seed in SEEDS]
    assert sum(fired) >= (len(SEEDS) // 6 if fault in MASKED else len(SEEDS))


def test_f01_is_one_stuck_bit_in_one_lane_of_one_tile() -> None:
    for seed in SEEDS:
        before, after, _ = struck("F01", seed)
        flips = word_flips(before, after)
        assert len(bits_of(flips)) == 1
        bit = bits_of(flips).pop()
        values = {int(word >> bit & 1) for word in after.view(torch.int32).flatten()[flips != 0]}
        assert len(values) == 1
        rows, columns = (flips.view_as(before) != 0).nonzero().t()
        assert int(rows.max() - rows.min()) < TILE
        lanes = {int(row % TILE * TILE + column % TILE) % 32 for row, column in zip(rows, columns, strict=True)}
        assert len(lanes) == 1


def test_f03_flips_several_bits_at_a_stride() -> None:
    for seed in SEEDS:
        before, after, _ = struck("F03", seed)
        flips = word_flips(before, after)
        assert len(set(flips[flips != 0].tolist())) == 1
        rows, columns = (flips.view_as(before) != 0).nonzero().t()
        places = sorted(int(row % TILE * TILE + column % TILE) for row, column in zip(rows, columns, strict=True))
        gaps = {b - a for a, b in itertools.pairwise(places)}
        assert len(gaps) == 1
        assert gaps <= {16, 32, 64, 128}


@pytest.mark.parametrize(("fault", "highest"), [("F04", 32), ("F05", 4)])
def test_f04_and_f05_flip_one_bit_of_one_element(fault: str, highest: int) -> None:
    seen = set()
    for seed in range(40):
        before, after, _ = struck(fault, seed)
        flips = word_flips(before, after)
        assert int((flips != 0).sum()) == 1
        assert len(bits_of(flips)) == 1
        seen |= bits_of(flips)
    assert seen <= set(range(highest))
    assert len(seen) > highest // 2


def test_f10_is_a_zero_or_a_poisoned_tile() -> None:
    kinds = set()
    for seed in SEEDS:
        before, after, _ = struck("F10", seed)
        changed = before.view(torch.int32) != after.view(torch.int32)
        assert int(changed.sum()) > TILE * TILE * 0.99
        kinds |= set(after.view(torch.int32)[changed].tolist())
    assert kinds == {0, -1}
    assert stale_byte(torch.float32) == 0xFF


@pytest.mark.parametrize("fault", ["F11", "F11.rows"])
def test_moved_tiles_and_rows_keep_the_multiset_of_values(fault: str) -> None:
    for seed in SEEDS:
        before, after, _ = struck(fault, seed)
        assert torch.equal(before.flatten().sort().values, after.flatten().sort().values)


def test_holes_are_zeros_at_the_period() -> None:
    before = torch.ones(2, 131_101)
    after = before.clone()
    assert Injector(inject("F11.holes")).hit(after)
    holes = (after != before).flatten().nonzero().flatten().tolist()
    assert len(holes) == 2
    assert holes[1] - holes[0] == 131_101


def test_f12_is_one_element_that_is_not_finite() -> None:
    kinds = {float(after[~torch.isfinite(after)]) for _, after, _ in (struck("F12", seed) for seed in SEEDS)}
    assert {"nan", "inf", "-inf"} == {str(kind) for kind in kinds}


def test_f13_is_invisible_to_xor() -> None:
    for seed in SEEDS:
        before, after, _ = struck("F13", seed)
        flips = word_flips(before, after)
        assert int((flips != 0).sum()) in {2, 4, 6, 8}
        assert len(bits_of(flips)) == 1
        assert len(set(flips[flips != 0].tolist())) == 1


def test_arithmetic_faults_strike_before_rounding() -> None:
    exact = output()
    masked = visible = 0
    for seed in range(60):
        rounded = exact.to(torch.bfloat16)
        after = rounded.clone()
        fired = Injector(inject("F04", seed=seed)).hit(after, lambda rows, columns: exact[rows, columns].clone())
        assert fired == (not torch.equal(after.view(torch.int16), rounded.view(torch.int16)))
        visible += fired
        masked += not fired
    # bf16 drops 16 of 32 bits: about half of the flips are rounded away, as they would be in the chip.
    assert 15 < masked < 45
    assert visible + masked == 60


def test_an_element_that_rounded_otherwise_is_left_alone() -> None:
    exact = torch.full((4, 4), 1.0)
    after = torch.full((4, 4), 2.0, dtype=torch.bfloat16)
    for seed in range(20):
        assert not Injector(inject("F04", seed=seed)).hit(after, lambda rows, columns: exact[rows, columns].clone())


def test_an_intermittent_fault_draws_by_launch_and_repeats_by_seed() -> None:
    def run(seed: int) -> list[bool]:
        injector = Injector(inject("F04", rate=0.2, seed=seed))
        return [injector.hit(output(rows=4, columns=4)) for _ in range(300)]

    assert run(1) == run(1)
    assert run(1) != run(2)
    assert 30 < sum(run(1)) < 90
    later = Injector(inject("F04", rate=0.2, seed=1), launches=100)
    assert [later.hit(output(rows=4, columns=4)) for _ in range(200)] == run(1)[100:]


def test_no_fault_counts_launches_and_changes_nothing() -> None:
    injector, value = Injector(None), output()
    assert not injector.hit(value)
    assert torch.equal(value, output())
    assert (injector.launches, injector.fired) == (1, 0)


@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (7, 1), (5,), (2, 3, 4), (0, 3), ()])
@pytest.mark.parametrize("fault", list(FAULTS))
def test_odd_shapes_do_no_harm(fault: str, shape: tuple[int, ...]) -> None:
    Injector(inject(fault)).hit(torch.ones(shape))


def case(dtype: str) -> Case:
    return Case(test="gemm.exact", name=f"{dtype} x", dtype=dtype, exact=True, rate_name="x")


@pytest.mark.parametrize(
    ("what", "cases", "message"),
    [
        (inject("F99"), [case("bf16")], "unknown fault 'F99'; known: F01, F02"),
        (inject("F03", rate=0), [case("bf16")], "rate 0 of F03 is not in"),
        (inject("F03", rate=1.5), [case("bf16")], "rate 1.5"),
        (inject("F03", rate=float("nan")), [case("bf16")], "rate nan"),
        (inject("F03"), [], "none of the chosen tests"),
        (inject("F12"), [case("int8")], "needs floats"),
    ],
)
def test_faults_that_cannot_change_anything_are_refused(what: Inject, cases: list[Case], message: str) -> None:
    with pytest.raises(SpecError, match=message.replace(".", r"\.")):
        check(what, cases)


STRUCK = {"F07": "gemm.exact fp8e4m3 x", "F07.exp2": "sfu fp32 exp2", "F07.convert": "sfu bf16 conversion",
          "F07.dq": "attention bf16 flash", "F16": "copy pairs", "F17": "collective.exact all-reduce int32",
          "F18": "collective.exact broadcast int32"}  # fmt: skip


def struck_case(fault: str) -> Case:
    test, _, name = STRUCK.get(fault, "gemm.exact bf16 x").partition(" ")
    return Case(test=test, name=name, dtype=name.split()[0], exact=True, rate_name="x")


@pytest.mark.parametrize("fault", list(FAULTS))
def test_faults_that_can_strike_pass_and_spare_other_operations(fault: str) -> None:
    check(inject(fault, rate=1e-6), [struck_case(fault), case("int8")])
    if FAULTS[fault].cases:
        with pytest.raises(SpecError, match="strikes none of the chosen cases"):
            check(inject(fault), [case("int8"), case("bf16")])
        with scene(Scene(case=case("bf16"))):
            assert not Injector(inject(fault)).hit(output())
        with scene(Scene(case=struck_case(fault))):
            assert Injector(inject(fault)).hit(output())


@pytest.mark.parametrize("fault", ["F16", "F17", "F18"])
def test_links_are_struck_in_company_too(fault: str) -> None:
    reduced = Case(test="overlap.links", name="all-reduce int32 16KiB", dtype="int32", exact=True, rate_name="x")
    check(inject(fault), [reduced])
    with pytest.raises(SpecError, match="strikes none"):
        check(inject(fault), [Case(test="overlap", name="exact lanes", dtype="bf16", exact=True, rate_name="x")])


def test_a_broken_operation_spares_the_others_of_its_case() -> None:
    with scene(Scene(case=struck_case("F07.dq"))):
        assert Injector(inject("F07.dq")).hit(output(), op="dq")
        assert not Injector(inject("F07.dq")).hit(output(), op="dk")


def test_f02_comes_and_goes_and_f01_stays() -> None:
    fired = {name: sum(Injector(inject(name), launches=n).hit(output()) for n in range(60)) for name in ("F01", "F02")}
    assert fired["F01"] == 60
    assert 5 < fired["F02"] < 30


def test_f06_strikes_only_matching_data() -> None:
    for seed in SEEDS:
        before, after, _ = struck("F06", seed)
        flips = word_flips(before, after)
        assert 0 < int((flips != 0).sum()) < TILE * TILE / 2**6
        assert len(bits_of(flips)) == 1


def test_f08_strikes_after_a_pause_or_in_heat() -> None:
    load = Injector(inject("F08"))
    for _ in range(2):
        with scene(Scene(case=case("fp32"))):
            assert [load.hit(output()) for _ in range(4)] == [True, True, False, False]
    for celsius, fires in ((30.0, False), (80.0, True), (None, False)):
        with scene(Scene(case=case("fp32"), celsius=lambda celsius=celsius: celsius)):
            assert Injector(inject("F08.hot")).hit(output()) is fires


def test_f09_leaves_out_a_step_of_the_real_sum_where_it_can() -> None:
    a, b = output(rows=64, columns=32), output(rows=48, columns=32)

    class Sums:
        def __call__(self, rows: slice, columns: slice) -> torch.Tensor:
            return a[rows] @ b[columns].t()

        def without_step(self, rows: slice, columns: slice, number: int) -> torch.Tensor:
            part = slice(8 * (number % 4), 8 * (number % 4) + 8)
            return self(rows, columns) - a[rows, part] @ b[columns, part].t()

    before = a @ b.t()
    after = before.clone()
    assert Injector(inject("F09")).hit(after, Sums())
    changed = (after != before).nonzero()
    assert len(changed) > 0.9 * 32 * 24
    whole = torch.arange(-300.0, 300.0).view(20, 30)
    less = whole.clone()
    assert Injector(inject("F09")).hit(less)
    assert torch.equal(less, less.round())
    assert (less.abs() <= whole.abs()).all()


def test_onlookers_see_every_result_as_the_checksum_does() -> None:
    seen: list[tuple[bool, bool]] = []
    here = Scene(case=case("fp32"), ear=lambda value, _, changed: seen.append((torch.equal(value, output()), changed)))
    with scene(here):
        Injector(None).hit(output())
        Injector(inject("F03")).hit(output())
    Injector(inject("F03")).hit(output())
    assert seen == [(True, False), (False, True)]


def test_a_series_of_launches_that_write_nothing_is_an_error() -> None:
    ctx = Context(backend="sim", device=torch.device("cpu"), inject=None, alive=lambda: None)

    def run(launch: Callable[[torch.Tensor], None]) -> None:
        launch_all(ctx, launch, lambda _: False, torch.empty(40, 30), launches=3, seed=5)

    def write_one_row(out: torch.Tensor) -> None:
        out[0].zero_()

    run(write_one_row)
    with pytest.raises(RuntimeError, match="none of 3 launches wrote its output"):
        run(lambda _: None)
