"""The sensor map by part: right names, a fresh document, and readers that follow it."""

from pathlib import Path

import pytest

from fleetd.devices.metrics_table import document
from fleetd.devices.parts import PARTS, part_of
from fleetd.model.telemetry import FAMILIES, METRICS
from tests.devices.nvidia_bench import bench, run

DOCUMENT = Path(__file__).parents[2] / "fleetd" / "devices" / "METRICS.md"


def test_the_document_is_fresh() -> None:
    assert DOCUMENT.read_text() == document(), "run `python -m fleetd.devices.metrics_table >` that file"


def test_the_map_speaks_of_the_catalogue_only() -> None:
    known = {entry.name for entry in METRICS + FAMILIES}
    assert {name for part in PARTS for name in part.absent} <= known
    for part in PARTS:
        assert (part.power_average is None) == ("power_watts" in part.absent), part.name
        assert (part.power_average is None) == (part.average_window_seconds is None), part.name


@pytest.mark.parametrize(
    ("product", "part"),
    [
        ("NVIDIA H200", "H200"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("AMD Instinct MI300X", "MI300X"),
        ("NVIDIA RTX 4090", None),
    ],
)
def test_a_part_is_known_by_the_products_name(product: str, part: str | None) -> None:
    found = part_of(product)
    assert (found.name if found else None) == part


def test_on_an_a100_the_power_reading_is_the_instant_and_there_is_no_average(tmp_path: Path) -> None:
    async def case() -> None:
        async with bench(tmp_path, gpus=1) as host:
            host.scenario.put(0, {"Name": "NVIDIA A100-SXM4-80GB"})
            host.scenario.put("*", {"field.186": None})
            (sample,) = await host.devices.sample()
            assert (sample.power_watts, sample.power_instant_watts) == (None, pytest.approx(692.123))

    run(case())


def test_an_h200_gives_what_the_map_says(tmp_path: Path) -> None:
    async def case() -> None:
        async with bench(tmp_path, gpus=1) as host:
            await host.devices.sample()
            host.clock.now_s += 10.0
            (sample,) = await host.devices.sample()
            names = {entry.name for entry in METRICS + FAMILIES} - {"implausible_readings_total"}
            absent = {name for name in names if getattr(sample, name) in (None, ())}
            part = part_of("NVIDIA H200")
            assert part is not None
            assert absent == set(part.absent)

    run(case())
