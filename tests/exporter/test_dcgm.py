"""`compat: dcgm`: names, types and labels as dcgm-exporter's own counters file has them, units as DCGM has them."""

import csv
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fleetd.exporter.dcgm import COUNTERS, DcgmCollector
from fleetd.exporter.page import Page
from fleetd.model.host import Gpu
from fleetd.model.ids import GpuId
from fleetd.model.job import GpuJob
from fleetd.model.telemetry import GpuSample
from tests.exporter.exporter_host import FAULTS, H200, INVENTORY, JOBS, MI300X, STATUS

with Path(__file__).with_name("dcgm-default-counters.csv").open(encoding="utf-8") as lines:
    THEIRS = {row["name"]: row for row in csv.DictReader(line for line in lines if not line.startswith("#"))}
LABELS = next(iter(THEIRS.values()))["labels"].partition(";")[0].split(",")
NOT_READ = {
    "DCGM_FI_DEV_VGPU_LICENSE_STATUS": "licences of virtual GPUs",
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": "its unit differs from driver to driver",
    "DCGM_FI_DRIVER_VERSION": "is a label of all others",
}
"""What dcgm-exporter serves by default and fleetd does not."""


def values(collector: DcgmCollector) -> dict[tuple[str, str], float]:
    found = {}
    for family in text_string_to_metric_families(Page([collector]).text()):
        for sample in family.samples:  # this parser calls every counter `_total`
            name = sample.name if sample.name in THEIRS else sample.name.removesuffix("_total")
            found[name, sample.labels["UUID"]] = sample.value
    return found


def test_names_and_types_are_theirs() -> None:
    kinds = {counter.name: counter.kind for counter in COUNTERS} | {"DCGM_FI_DEV_XID_ERRORS": "gauge"}
    assert {name: THEIRS[name]["type"] for name in kinds} == kinds
    text = Page([DcgmCollector(lambda: STATUS, host="h1", faults=lambda: FAULTS)]).text()
    assert {line.split()[2]: line.split()[3] for line in text.splitlines() if line.startswith("# TYPE")} == kinds


def test_everything_that_they_serve_by_default_is_served() -> None:
    ours = {counter.name for counter in COUNTERS} | {"DCGM_FI_DEV_XID_ERRORS"}
    assert {name for name, row in THEIRS.items() if row["default"] == "on"} - ours == set(NOT_READ)


def test_labels_are_theirs_for_both_vendors() -> None:
    text = Page([DcgmCollector(lambda: STATUS, host="h1", jobs=lambda: JOBS)]).text()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            pod = ["namespace", "pod", "container"] if sample.labels["UUID"] == MI300X else []
            assert sorted(sample.labels) == sorted(LABELS + pod)
    assert (
        f'DCGM_FI_DEV_SM_CLOCK{{gpu="1",UUID="{MI300X}",pci_bus_id="00000000:C3:00.0",device="amd1",'
        'modelName="AMD Instinct MI300X",Hostname="h1",DCGM_FI_DRIVER_VERSION="6.12.12",'
        'namespace="train",pod="llm-0 \\"blue\\"",container="worker"}'
    ) in text


def test_the_readings_of_a_shared_gpu_belong_to_no_pod() -> None:
    shared = [GpuJob(gpu=H200, scheduler="kubernetes", namespace="a", pod=f"p{i}", container="c") for i in range(2)]
    assert "pod=" not in Page([DcgmCollector(lambda: STATUS, host="h1", jobs=lambda: shared)]).text()


@pytest.mark.parametrize(
    ("name", "reading", "expected"),
    [
        ("DCGM_FI_DEV_SM_CLOCK", {"sm_clock_hertz": 1980e6}, 1980.0),
        ("DCGM_FI_DEV_MEM_CLOCK", {"memory_clock_hertz": 3201e6}, 3201.0),
        ("DCGM_FI_DEV_POWER_USAGE", {"power_watts": 690.0, "power_instant_watts": 850.0}, 690.0),
        ("DCGM_FI_DEV_POWER_USAGE", {"power_instant_watts": 412.0}, 412.0),
        ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", {"energy_joules_total": 12.5}, 12500.0),
        ("DCGM_FI_DEV_GPU_UTIL", {"utilization_ratio": 0.25}, 25.0),
        ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", {"graphics_active_ratio": 0.25}, 0.25),
        ("DCGM_FI_DEV_FB_USED", {"memory_used_bytes": 3.0 * 2**20}, 3.0),
        (
            "DCGM_FI_DEV_FB_FREE",
            {"memory_total_bytes": 10.0 * 2**20, "memory_used_bytes": 3.0 * 2**20, "memory_reserved_bytes": 2.0**20},
            6.0,
        ),
        ("DCGM_FI_DEV_POWER_VIOLATION", {"throttle_seconds_total": (("power_cap", 2.5),)}, 2.5e9),
        (
            "DCGM_FI_DEV_THERMAL_VIOLATION",
            {"throttle_seconds_total": (("power_cap", 9.0), ("software_thermal", 1.0), ("hardware_thermal", 0.5))},
            1.5e9,
        ),
        (
            "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL",
            {"fabric_link_replay_errors_total": (("0", 2.0), ("1", 3.0))},
            5.0,
        ),
    ],
)
def test_units_are_theirs(name: str, reading: dict[str, object], expected: float) -> None:
    sample = GpuSample(gpu=H200, at_s=1.0, **reading)  # type: ignore[arg-type]
    status = replace(STATUS, samples=(sample,))
    found = values(DcgmCollector(lambda: status, host="h1"))
    assert found.pop(("DCGM_FI_DEV_XID_ERRORS", H200)) == 0.0
    assert found[name, H200] == expected


def test_what_was_not_read_is_absent_and_never_zero() -> None:
    status = replace(STATUS, samples=(GpuSample(gpu=MI300X, at_s=1.0),), inventory=INVENTORY[1:])
    assert Page([DcgmCollector(lambda: status, host="h1")]).text() == "", "an AMD GPU has no XID, not XID 0"


def test_the_last_xid_of_each_gpu() -> None:
    other = Gpu(gpu=GpuId("GPU-other"), index=2, vendor="nvidia", sku="NVIDIA H200", pci_address=None)
    status = replace(STATUS, inventory=(*INVENTORY, other))
    found = values(DcgmCollector(lambda: status, host="h1", faults=lambda: FAULTS))
    assert found["DCGM_FI_DEV_XID_ERRORS", H200] == 79.0, "the later of the two"
    assert found["DCGM_FI_DEV_XID_ERRORS", other.gpu] == 0.0


def test_a_new_job_or_fault_is_shown_without_a_new_reading() -> None:
    jobs: list[GpuJob] = []
    collector = DcgmCollector(lambda: STATUS, host="h1", jobs=lambda: jobs)
    page = Page([collector])
    assert "namespace" not in page.text()
    assert page.text() == page.text()
    jobs += JOBS
    assert 'namespace="train"' in page.text()
