"""A host as the exporter's tests show it: an H200 and an MI300X side by side, with everything that can be told."""

from fleetd.model.finding import Severity
from fleetd.model.host import Gpu
from fleetd.model.ids import GpuId
from fleetd.model.job import GpuJob
from fleetd.model.power import GpuPower, PowerSeen, PowerStatus, WindowShown
from fleetd.model.status import AgentStatus, FaultCount
from fleetd.model.telemetry import FAMILIES, METRICS, THROTTLE_REASONS, GpuSample

H200, MI300X = GpuId("GPU-8a3f6c1e-0000-4b1a-9c55-000000000000"), GpuId("64ff74a1-0000-1000-8000-000000000001")
STARTED_AT_S = 1_764_000_000.0
INVENTORY = (
    Gpu(
        gpu=H200,
        index=0,
        vendor="nvidia",
        sku="NVIDIA H200",
        pci_address="00000000:1B:00.0",
        vbios="96.00.D9.00.01",
        firmware="580.159.04",
        driver_version="580.159.04",
    ),
    Gpu(
        gpu=MI300X,
        index=1,
        vendor="amd",
        sku="AMD Instinct MI300X",
        pci_address="0000:c3:00.0",
        driver_version="6.12.12",
    ),
)


def full(gpu: GpuId, at_s: float = STARTED_AT_S + 60.0) -> GpuSample:
    """Every entry of the catalogue has a number, and every number is another one."""
    values: dict[str, object] = {}
    for place, metric in enumerate(METRICS, start=1):
        values[metric.name] = place / 128.0 if metric.name.endswith("_ratio") else float(1000 * place)
    for place, family in enumerate(FAMILIES, start=1):
        labels = THROTTLE_REASONS if family.label == "reason" else ("0", "1")
        values[family.name] = tuple((label, place + i / 8.0) for i, label in enumerate(labels))
    return GpuSample(gpu=gpu, at_s=at_s, **values)  # type: ignore[arg-type]


FAULTS = (
    FaultCount(code="nvidia.xid.13", severity=Severity.WARNING, gpu=H200, total=7, last_at_s=STARTED_AT_S + 20.0),
    FaultCount(code="nvidia.xid.79", severity=Severity.FATAL, gpu=H200, total=1, last_at_s=STARTED_AT_S + 30.0),
    FaultCount(
        code="agent.driver_unresponsive", severity=Severity.ERROR, gpu=None, total=2, last_at_s=STARTED_AT_S + 40.0
    ),
)
JOBS = (
    GpuJob(gpu=H200, scheduler="slurm", job_id="4711", user="ada", account="physics"),
    GpuJob(gpu=MI300X, scheduler="kubernetes", namespace="train", pod='llm-0 "blue"', container="worker"),
)
SEEN = PowerSeen(
    spacing_s=0.02,
    windows_watts={"20ms": 913.0, "1s": 690.0},
    swing_watts=780.0,
    ramp_up_watts_per_second=7800.0,
    ramp_down_watts_per_second=2130.0,
    band_ratio=0.15,
)
POWER = PowerStatus(
    allowed="boost",
    envelope="h200",
    set_point="in use",
    lease_live=True,
    lease_why="",
    renewed_total=1200,
    gpus=(
        GpuPower(
            gpu=H200,
            mode="boost",
            why="everything is good",
            targets_watts={"limit": 672.0},
            set_watts={"limit": 672.0},
            enforced_watts=672.0,
            power_watts=650.0,
            defaults_watts={"limit": 700.0},
            clock_limit_hertz=1.605e9,
            smoothing_lost=False,
            seen=SEEN,
            sights={"20us": "unobservable", "20ms": "audited", "1s": "certified"},
        ),
        GpuPower(
            gpu=MI300X,
            mode="observe",
            why="the envelope is for H200, this is AMD Instinct MI300X",
            targets_watts={},
            set_watts={},
            enforced_watts=None,
            power_watts=None,
        ),
    ),
    writes_total=16,
    write_errors_total=1,
    drift_total={"foreign": 2},
    tbp_watts=700.0,
    windows=(
        WindowShown(label="20us", over_s=2e-5, allowed_ratio=None, certified=False),
        WindowShown(label="20ms", over_s=0.02, allowed_ratio=None, certified=False),
        WindowShown(label="1s", over_s=1.0, allowed_ratio=0.96, certified=True),
    ),
)
"""A governor of the H200; the other part is none of its envelope's."""
STATUS = AgentStatus(
    inventory=INVENTORY,
    samples=(full(H200), full(MI300X, STARTED_AT_S + 52.0)),
    samples_age_s=0.25,
    silent_gpus=(),
    overruns_total=2,
    uplink_connected=True,
    spool_pending=3,
    spool_dropped_total=0,
    findings_total=4,
    kernel_log_age_s=0.5,
    kernel_log_lost_total=0,
    errors_total={"device": 5, "store": 0},
    burnin_runs_total={"pass": 1, "fail": 0, "not_judged": 0},
)
