"""What NVIDIA's values mean, whatever tool printed them: nvidia-smi text or XML, an exporter.

The thresholds are the vendor's published criteria for replacement (GPU memory error management: a remapping failure,
more than four SRAM uncorrectable errors in the board's life or the threshold flag, 60 retired pages).
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from fleetd.core.faults.documents.found import Found, Reading, number
from fleetd.core.policy import Action
from fleetd.model.finding import Severity

RETIRED_PAGES_MAX = 60
SRAM_UE_MAX = 4
_YES = frozenset({"yes", "true", "1", "active", "enabled"})


class Field(StrEnum):
    """The values that can say something about a GPU's health."""

    REMAP_CORRECTABLE = "rows remapped after correctable errors"
    REMAP_UNCORRECTABLE = "rows remapped after uncorrectable errors"
    REMAP_PENDING = "row remapping pending"
    REMAP_FAILURE = "row remapping failed"
    REMAP_BANKS_NONE = "banks without spare rows"
    RETIRED_SBE = "pages retired after single-bit errors"
    RETIRED_DBE = "pages retired after double-bit errors"
    RETIRED_PENDING = "page retirement pending"
    VOLATILE_SRAM_UE = "uncorrectable SRAM errors since the reset"
    VOLATILE_DRAM_UE = "uncorrectable DRAM errors since the reset"
    AGGREGATE_SRAM_UE = "uncorrectable SRAM errors in the board's life"
    AGGREGATE_DRAM_UE = "uncorrectable DRAM errors in the board's life"
    SRAM_THRESHOLD = "SRAM error threshold exceeded"
    RECOVERY_ACTION = "recovery action"
    RESET_REQUIRED = "reset required"
    DRAIN_RECOMMENDED = "drain and reset recommended"
    HW_SLOWDOWN = "hardware slowdown"
    HW_THERMAL = "hardware thermal slowdown"
    HW_POWER_BRAKE = "hardware power brake"
    SW_THERMAL = "software thermal slowdown"
    FABRIC_STATE = "fabric state"
    FABRIC_STATUS = "fabric status"
    FABRIC_BANDWIDTH = "fabric bandwidth"
    FABRIC_SUMMARY = "fabric health"
    PCIE_WIDTH_MAX = "widest PCIe link"
    PCIE_WIDTH = "PCIe link width"
    TEMPERATURE = "temperature"
    TEMPERATURE_SLOWDOWN = "temperature at which the GPU slows down"
    PRODUCT = "product"


_REASONS = r"clocks_(?:event|throttle)_reasons/(?:.*/)?(?:clocks_(?:event|throttle)_reason_)?"
_PATHS: tuple[tuple[str, Field], ...] = (
    (r"remapped_rows/(?:correctable_error|remapped_row_corr)", Field.REMAP_CORRECTABLE),
    (r"remapped_rows/(?:uncorrectable_error|remapped_row_unc)", Field.REMAP_UNCORRECTABLE),
    (r"remapped_rows/(?:remapped_row_)?pending", Field.REMAP_PENDING),
    (r"remapped_rows/(?:remapping_failure_occurred|remapped_row_failure)", Field.REMAP_FAILURE),
    (r"remapped_rows/(?:bank_remap_availability|row_remapper)_histogram/(?:row_remapper_histogram_)?none",
     Field.REMAP_BANKS_NONE),
    (r"retired_pages/(?:single_bit_ecc|multiple_single_bit_retirement/retired_count)", Field.RETIRED_SBE),
    (r"retired_pages/(?:double_bit_ecc|double_bit_retirement/retired_count)", Field.RETIRED_DBE),
    (r"retired_pages/pending.*", Field.RETIRED_PENDING),
    (r"ecc_errors/volatile/sram_uncorrectable.*", Field.VOLATILE_SRAM_UE),
    (r"ecc_errors/volatile/(?:dram_uncorrectable.*|double_bit/(?:device_memory|total))", Field.VOLATILE_DRAM_UE),
    (r"ecc_errors/aggregate/sram_uncorrectable.*", Field.AGGREGATE_SRAM_UE),
    (r"ecc_errors/aggregate/(?:dram_uncorrectable.*|double_bit/(?:device_memory|total))", Field.AGGREGATE_DRAM_UE),
    (r"ecc_errors/(?:aggregate/)?sram_threshold_exceeded", Field.SRAM_THRESHOLD),
    (r"gpu_recovery_action", Field.RECOVERY_ACTION),
    (r"gpu_reset_status/reset_required", Field.RESET_REQUIRED),
    (r"gpu_reset_status/drain_and_reset_recommended", Field.DRAIN_RECOMMENDED),
    (_REASONS + "hw_slowdown", Field.HW_SLOWDOWN),
    (_REASONS + "hw_thermal_slowdown", Field.HW_THERMAL),
    (_REASONS + "hw_power_brake_slowdown", Field.HW_POWER_BRAKE),
    (_REASONS + "sw_thermal_slowdown", Field.SW_THERMAL),
    (r"fabric/state", Field.FABRIC_STATE),
    (r"fabric/status", Field.FABRIC_STATUS),
    (r"fabric/health/bandwidth", Field.FABRIC_BANDWIDTH),
    (r"fabric/health/(?:health_)?summary", Field.FABRIC_SUMMARY),
    (r"pci/(?:pci_)?gpu_link_info/(?:link_width/max|link_widths/max_link_width)", Field.PCIE_WIDTH_MAX),
    (r"pci/(?:pci_)?gpu_link_info/(?:link_width/current|link_widths/current_link_width)", Field.PCIE_WIDTH),
    (r"temperature/(?:gpu_current_temp|gpu_temp)", Field.TEMPERATURE),
    (r"temperature/(?:gpu_slowdown_temp|gpu_temp_slow_threshold)", Field.TEMPERATURE_SLOWDOWN),
    (r"product_name", Field.PRODUCT),
)  # fmt: skip
_FIELDS = tuple((re.compile(pattern), field) for pattern, field in _PATHS)

_UNANSWERED = re.compile(r"\[?(?:unknown error|err!|gpu is lost|gpu requires reset|unable to [a-z ]+)\.?\]?", re.IGNORECASE)
"""What NVML's errors look like where a value should stand."""


def field_of(path: str) -> Field | None:
    """Return what a path of nvidia-smi's text or XML stands for; None for what says nothing about health."""
    return next((field for pattern, field in _FIELDS if pattern.fullmatch(path)), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """One known value of one GPU."""

    field: Field
    device: str | None
    value: str
    line: int
    text: str


def judge_readings(readings: Iterable[Reading], found: Found) -> None:
    """Judge the readings of any number of GPUs, each by itself, in the order of the document."""
    gpus: dict[str | None, list[Value]] = {}
    unanswered: set[tuple[str | None, str]] = set()
    for reading in readings:
        if _UNANSWERED.fullmatch(reading.value):
            _unanswered(reading, unanswered, found)
        field = field_of(reading.path)
        if field is not None:
            gpus.setdefault(reading.device, []).append(
                Value(field=field, device=reading.device, value=reading.value, line=reading.line, text=reading.text)
            )
    for values in gpus.values():
        judge_values(values, found)


def _unanswered(reading: Reading, told: set[tuple[str | None, str]], found: Found) -> None:
    value = reading.value.lower()
    code = "nvidia.nvml.unknown_error"
    if "lost" in value:
        code = "nvidia.nvml.gpu_lost"
    elif "reset" in value:
        code = "nvidia.nvml.reset_required"
    if (reading.device, code) in told:
        return
    told.add((reading.device, code))
    # A fan that does not answer is no reason to take the GPU away.
    fan = reading.path.startswith("fan_speed")
    found.see(
        code,
        reading.device,
        reading.line,
        reading.text,
        why=f"the driver has no answer for '{reading.path}'",
        action=Action.MONITOR if fan else None,
        severity=Severity.WARNING if fan else None,
    )


class Gpu:
    """The values of one GPU, by field."""

    def __init__(self, values: Sequence[Value]) -> None:
        self._values: dict[Field, list[Value]] = {}
        for value in values:
            self._values.setdefault(value.field, []).append(value)

    def first(self, field: Field) -> Value | None:
        """The first value of the field that is not zero, else the first one."""
        values = self._values.get(field, [])
        return next((v for v in values if number(v.value)), values[0] if values else None)

    def total(self, field: Field) -> float:
        """Sum of the field's numbers (a counter may come in parts); 0 without any."""
        return sum(max(number(v.value) or 0.0, 0.0) for v in self._values.get(field, ()))

    def yes(self, field: Field) -> bool:
        """Whether the field says yes, in one of the ways in which tools say it."""
        return any(v.value.strip().lower() in _YES or (number(v.value) or 0) > 0 for v in self._values.get(field, ()))

    def text(self, field: Field) -> str:
        """The value as printed; empty without one."""
        value = self.first(field)
        return "" if value is None else value.value.strip()


def judge_values(values: Sequence[Value], found: Found) -> None:
    """Judge the values of one GPU."""
    found.values += len(values)
    gpu = Gpu(values)
    seer = _Seer(gpu, found)
    _memory(gpu, seer)
    _recovery(gpu, seer)
    _state(gpu, seer)


class _Seer:
    """Adds an observation about a GPU, with the line of the value that shows it."""

    def __init__(self, gpu: Gpu, found: Found) -> None:
        self._gpu = gpu
        self._found = found

    def see(
        self,
        code: str,
        field: Field,
        why: str | None = None,
        action: Action | None = None,
        severity: Severity | None = None,
    ) -> None:
        value = self._gpu.first(field)
        if value is not None:
            self._found.see(code, value.device, value.line, value.text, why=why, action=action, severity=severity)


def _memory(gpu: Gpu, seer: _Seer) -> None:
    if gpu.yes(Field.REMAP_FAILURE):
        seer.see("nvidia.remap.failed", Field.REMAP_FAILURE)
    if gpu.yes(Field.REMAP_PENDING):
        only_correctable = gpu.total(Field.REMAP_CORRECTABLE) > 0 and gpu.total(Field.REMAP_UNCORRECTABLE) == 0
        if only_correctable:
            why = "the errors were correctable: the reset can wait until the job has ended"
            seer.see("nvidia.remap.pending", Field.REMAP_PENDING, why, Action.MONITOR, Severity.WARNING)
        else:
            seer.see("nvidia.remap.pending", Field.REMAP_PENDING)
    elif gpu.total(Field.REMAP_UNCORRECTABLE) and not gpu.yes(Field.REMAP_FAILURE):
        seer.see("nvidia.remap.done", Field.REMAP_UNCORRECTABLE)
    if gpu.total(Field.REMAP_BANKS_NONE):
        seer.see("nvidia.remap.banks_exhausted", Field.REMAP_BANKS_NONE)
    retired = gpu.total(Field.RETIRED_SBE) + gpu.total(Field.RETIRED_DBE)
    if retired >= RETIRED_PAGES_MAX:
        more = Field.RETIRED_DBE if gpu.total(Field.RETIRED_DBE) else Field.RETIRED_SBE
        seer.see("nvidia.retired_pages.limit", more, f"{retired:.0f} retired pages, the limit is {RETIRED_PAGES_MAX}")
    elif gpu.yes(Field.RETIRED_PENDING):
        seer.see("nvidia.retired_pages.pending", Field.RETIRED_PENDING)
    in_life = gpu.total(Field.AGGREGATE_SRAM_UE)
    if gpu.yes(Field.SRAM_THRESHOLD):
        seer.see("nvidia.ecc.sram_threshold", Field.SRAM_THRESHOLD)
    elif in_life > SRAM_UE_MAX:
        why = f"{in_life:.0f} uncorrectable SRAM errors in the board's life, the limit is {SRAM_UE_MAX}"
        seer.see("nvidia.ecc.sram_threshold", Field.AGGREGATE_SRAM_UE, why)
    past = "counted before the last reset: history, no present fault"
    for kind, now, ever in (
        ("sram", Field.VOLATILE_SRAM_UE, Field.AGGREGATE_SRAM_UE),
        ("dram", Field.VOLATILE_DRAM_UE, Field.AGGREGATE_DRAM_UE),
    ):
        if gpu.total(now):
            seer.see(f"nvidia.ecc.{kind}_ue", now)
        elif gpu.total(ever):
            seer.see(f"nvidia.ecc.{kind}_ue", ever, past, Action.MONITOR, Severity.INFO)


RECOVERY = (
    ("none", Action.NONE, Severity.INFO),
    ("gpu reset", Action.RESET_GPU, Severity.ERROR),
    ("node reboot", Action.REBOOT, Severity.FATAL),
    ("drain p2p", Action.DRAIN, Severity.ERROR),
    ("drain and reset", Action.DRAIN, Severity.ERROR),
)
"""NVML's recovery actions by their number (`nvmlDeviceGpuRecoveryAction_t`): text, action, severity."""
_RECOVERY_WORDS = {"n/a": "none", "": "none", "reset": "gpu reset", "reboot": "node reboot"}


def _recovery(gpu: Gpu, seer: _Seer) -> None:
    asked = gpu.text(Field.RECOVERY_ACTION)
    words = asked.strip("[]").lower().removesuffix(" required")
    words = _RECOVERY_WORDS.get(words, words)
    by_number = number(words)
    if by_number is not None:
        words = RECOVERY[int(by_number)][0] if 0 <= by_number < len(RECOVERY) else words
    known = {name: (action, severity) for name, action, severity in RECOVERY}
    if words in known and words != "none":
        action, severity = known[words]
        seer.see("nvidia.recovery_action", Field.RECOVERY_ACTION, f"the driver asks for '{words}'", action, severity)
    elif words not in known and asked.lower() not in ("not supported", "unknown error"):
        why = f"the driver asks for '{asked}', which is not known here: a human has to look"
        seer.see("nvidia.recovery_action", Field.RECOVERY_ACTION, why, Action.MONITOR, Severity.WARNING)
    if gpu.yes(Field.DRAIN_RECOMMENDED):
        why = "the driver recommends to drain and reset"
        seer.see("nvidia.recovery_action", Field.DRAIN_RECOMMENDED, why, Action.DRAIN, Severity.ERROR)
    if gpu.yes(Field.RESET_REQUIRED):
        seer.see("nvidia.nvml.reset_required", Field.RESET_REQUIRED)


_FABRIC_GOOD = frozenset({"", "n/a", "not supported", "success", "completed", "full", "healthy", "none"})


def _state(gpu: Gpu, seer: _Seer) -> None:
    if gpu.yes(Field.HW_POWER_BRAKE):
        seer.see("nvidia.throttle.power_brake", Field.HW_POWER_BRAKE)
    if gpu.yes(Field.HW_THERMAL):
        seer.see("nvidia.throttle.hw_thermal", Field.HW_THERMAL)
    if gpu.yes(Field.HW_SLOWDOWN) and not (gpu.yes(Field.HW_POWER_BRAKE) or gpu.yes(Field.HW_THERMAL)):
        seer.see("nvidia.throttle.hw_slowdown", Field.HW_SLOWDOWN)
    limit, now = number(gpu.text(Field.TEMPERATURE_SLOWDOWN)), number(gpu.text(Field.TEMPERATURE))
    if gpu.yes(Field.SW_THERMAL):
        seer.see("nvidia.throttle.sw_thermal", Field.SW_THERMAL)
    elif limit is not None and now is not None and now >= limit > 0:
        seer.see("nvidia.throttle.hw_thermal", Field.TEMPERATURE, f"{now:.0f} °C, it slows down at {limit:.0f} °C")
    state, status = gpu.text(Field.FABRIC_STATE).lower(), gpu.text(Field.FABRIC_STATUS).lower()
    if state in ("in progress", "not started"):
        seer.see("nvidia.fabric.not_ready", Field.FABRIC_STATE)
    elif status not in _FABRIC_GOOD:
        seer.see("nvidia.fabric.failed", Field.FABRIC_STATUS)
    elif state not in _FABRIC_GOOD:
        seer.see("nvidia.fabric.failed", Field.FABRIC_STATE)
    for field in (Field.FABRIC_BANDWIDTH, Field.FABRIC_SUMMARY):
        if gpu.text(field).lower() not in _FABRIC_GOOD:
            seer.see("nvidia.fabric.degraded", field)
            break
    widest, width = number(gpu.text(Field.PCIE_WIDTH_MAX)), number(gpu.text(Field.PCIE_WIDTH))
    if widest and width and width < widest:
        seer.see("pcie.link.degraded", Field.PCIE_WIDTH, f"{width:.0f} of {widest:.0f} lanes are in use")
