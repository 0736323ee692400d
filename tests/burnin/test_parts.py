"""What is known of each part: strict files, published figures that agree with each other, nothing without a source."""

import subprocess
import sys
from importlib import resources

import pytest

from burnin.parts import shelf
from burnin.parts.part import Part
from burnin.parts.reading import PartError, parse

NAMES = ("b200", "h100", "h200", "mi300x", "mi325x", "mi350x", "mi355x")


FITTED = """fitted:
  verified: {date: "2026-11-30", driver: "1", torch: "2", points: 17}
  error_p90: null
  clock_hertz: 1.74e+9
  launch_seconds: 4.41e-6
  fill_clocks: null
  tile_clocks: null
  l2_bytes_per_second: null
  hbm_share: 0.9
  cache_share: null
  copy_share: 0.9
  softness: null
  unaligned: {2: 0.2}
  older: null
  power: null
  data: {normal: 1.0}
  dtypes:
    tf32:
      share: 0.9
      watts: null
"""


def text(name: str) -> str:
    """A part's file, with a block of fitted constants that no new measurement changes."""
    whole = (resources.files("burnin.parts") / f"{name}.yaml").read_text(encoding="utf-8")
    head, _, rest = whole.partition("\nfitted:")
    return f"{head}\n{FITTED}peer_fitted:{rest.partition('peer_fitted:')[2]}"


def test_the_parts_of_the_shelf_are_read_and_found_in_any_case_of_letters() -> None:
    assert shelf.names() == NAMES
    assert [part.name for part in shelf.every()] == list(NAMES)
    assert shelf.load("H200") == shelf.load("h200")


@pytest.mark.parametrize(
    ("name", "dtype", "published"),
    [  # dense matrix rates of the vendors' data sheets, in TFLOP/s
        ("mi300x", "bf16", 1307.4),
        ("mi300x", "fp8e4m3fnuz", 2614.9),
        ("mi300x", "tf32", 653.7),
        ("mi300x", "fp64", 163.4),
        ("mi325x", "fp16", 1307.4),
        ("mi350x", "bf16", 2306.9),
        ("mi355x", "bf16", 2516.6),
        ("mi355x", "fp8e4m3", 5033.2),
        ("mi355x", "fp64", 78.6),
        ("h100", "fp32", 66.9),
        ("h200", "fp64", 66.9),
    ],
)
def test_units_times_clock_times_work_is_the_published_peak(name: str, dtype: str, published: float) -> None:
    part = shelf.load(name)
    peak = part.units * part.clock_max_hertz * part.flops_per_clock[dtype]
    assert peak == pytest.approx(published * 1e12, rel=0.002)


@pytest.mark.parametrize(
    ("name", "dtype", "published", "clock_ghz"),
    [  # NVIDIA states tensor rates at a lower clock than the highest
        ("h100", "bf16", 989.4, 1.83),
        ("h200", "fp8e4m3", 1978.9, 1.83),
        ("b200", "bf16", 2250.0, 1.856),
    ],
)
def test_at_the_vendors_own_clock_the_tensor_rates_agree(
    name: str, dtype: str, published: float, clock_ghz: float
) -> None:
    part = shelf.load(name)
    assert part.units * clock_ghz * 1e9 * part.flops_per_clock[dtype] == pytest.approx(published * 1e12, rel=0.002)
    assert part.clock_max_hertz > clock_ghz * 1e9


@pytest.mark.parametrize("part", shelf.every(), ids=lambda part: part.name)
def test_every_published_constant_has_a_source_and_products_of_a_name_belong_to_one_part(part: Part) -> None:
    for name in ("units", "flops_per_clock", "hbm_bytes_per_second", "tdp_watts", "peer", "tiles", "l2_bytes"):
        assert part.sources[name], name
    for name in ("llc_bytes_per_second", "shared_bytes_per_clock", "llc_bytes"):
        assert (name in part.sources) == (getattr(part, name) is not None)
    assert sum(sku in other.skus for other in shelf.every() for sku in part.skus) == len(part.skus)


def test_nobody_is_called_verified_who_was_never_run() -> None:
    run = [part.name for part in shelf.every() if part.fitted is not None]
    assert run == ["h200"]
    h200 = shelf.load("h200")
    assert h200.fitted is not None
    assert h200.fitted.verified.points > 10
    assert shelf.load("mi300x").unknown == ("clock under load", "library's share of the peak", "L2 bandwidth", "power")


OLDER = "dtypes: [int8], tiles: [[128, 128]], share: 0.6, tile_clocks: 9, store_clocks: 9, softness: 2"
BROKEN = [
    ("units: [132, whitepaper]", "units: [132, hearsay]", "units: the source 'hearsay' is none of"),
    ("units: [132, whitepaper]", "units: 132", "units: write [value, source]"),
    ("units: [132, whitepaper]", "units: [-1, whitepaper]", "units: -1 is out of range"),
    ("units: [132, whitepaper]", "units: [132.5, whitepaper]", "units: 132.5 is no whole number"),
    ("units: [132, whitepaper]", "units: null", "units: cannot be null"),
    ("units: [132, whitepaper]", "units: [many, whitepaper]", "units: 'many' is no number"),
    ("units: [132, whitepaper]", "units: [132, whitepaper]\nunits: [1, whitepaper]", "units stands twice"),
    ("chiplets: [1,", "chiplets: [5,", "132 cannot be dealt to 5 chiplets"),
    ("tdp_watts: [700, sheet]\n", "", "missing: tdp_watts"),
    ("tdp_watts: [700, sheet]", "tdp_watts: [.inf, sheet]", "tdp_watts: inf is out of range"),
    ("tdp_watts: [700, sheet]", "tdp_watts: [.nan, sheet]", "tdp_watts: nan is out of range"),
    ("vendor: nvidia", "vendor: nvidia\ncolour: green", "unknown: colour"),
    ("{normal: 1.0}", "{normal: 1.0, normal: 2.0}", "normal stands twice"),
    ("softness: null", "softness: 0.5", "softness: at least 1"),
    ("cache_share: null", "cache_share: 1.5", "fitted.cache_share: 1.5 is a share"),
    ("older: null", f"older: {{{OLDER}, colour: green}}", "fitted.older: unknown: colour"),
    ("older: null", f"older: {{{OLDER.replace('[int8]', 'int8')}}}", "fitted.older.dtypes: a list is wanted"),
    ("older: null", f"older: {{{OLDER.replace('int8', 'fp4')}}}", "fitted.older: fp4: not in flops_per_clock"),
    ("older: null", f"older: {{{OLDER.replace('[[128, 128]]', '[]')}}}", "fitted.older.tiles: a list is wanted"),
    ("older: null", f"older: {{{OLDER.replace('softness: 2', 'softness: 0.5')}}}", "fitted.older.softness: 0.5 is out"),
    ("topology: switch", "topology: bus", "switch or mesh, not 'bus'"),
    ("hbm_share: 0.", "hbm_share: 1.", "is a share, at most 1"),
    ("clock_hertz: 1.74e+9", "clock_hertz: 2.74e+9", "is above clock_max_hertz"),
    ("clock_hertz: 1.74e+9", "clock_hertz: 1.74e9", "no number (write 1.0e+9"),
    ("error_p90: null", "error_p90: 1.5", "error_p90"),
    ("    tf32:\n", "    fp4:\n", "fp4: not in flops_per_clock"),
    ("points: 17", "points: true", "points: True is no number"),
    ("llc_bytes_per_second: null", "llc_bytes_per_second: [1, sheet]", "of a cache that is not there"),
    ("sources:", "sources: [", "no YAML"),
]


@pytest.mark.parametrize(("good", "bad", "told"), BROKEN, ids=[told for _, _, told in BROKEN])
def test_a_mistake_in_a_file_is_one_line_that_names_file_and_place(good: str, bad: str, told: str) -> None:
    whole = text("h200")
    assert good in whole
    with pytest.raises(PartError) as error:
        parse(whole.replace(good, bad, 1), "h200.yaml")
    assert str(error.value).startswith("h200.yaml: ")
    assert told in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["a100", "", "../h200", "h200.yaml"])
def test_an_unknown_part_lists_those_there_are(name: str) -> None:
    with pytest.raises(PartError, match="there are b200, h100, h200"):
        shelf.load(name)


def test_parts_and_model_need_no_torch() -> None:
    code = (
        "import sys, burnin.roofline.cases, burnin.roofline.collective, burnin.parts.shelf; "
        "print([m for m in ('torch', 'numpy', 'triton') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
