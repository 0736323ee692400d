"""What NVIDIA's values mean, whatever tool printed them: nvidia-smi text or XML, an exporter.

The thresholds are the vendor's published criteria for replacement (GPU memory error management: a remapping failure,
more than four SRAM uncorrectable errors in the board's life or the threshold flag, 60 retired pages).
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from fleetd.core.faults.documents.found import Found, Reading, number
from fleetd.core.faults.documents.nvidia_fields import Field, field_of
from fleetd.core.policy import Action
from fleetd.model.finding import Severity

RETIRED_PAGES_MAX = 60
SRAM_UE_MAX = 4
_NO_HEALTH = frozenset(
    {Field.PRODUCT, Field.TEMPERATURE, Field.TEMPERATURE_SLOWDOWN, Field.PCIE_WIDTH, Field.PCIE_WIDTH_MAX}
)
"""A GPU with good ones of these may still be broken: alone they judge nothing."""
_YES = frozenset({"yes", "true", "1", "active", "enabled"})


_UNANSWERED = re.compile(
    r"\[?(?:unknown error|err!|gpu is lost|gpu requires reset|unable to [a-z ]+)\.?\]?", re.IGNORECASE
)
"""What NVML's errors look like where a value should stand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """One known value of one GPU."""

    field: Field
    device: str | None
    value: str
    line: int
    text: str


def judge_readings(
    readings: Iterable[Reading], found: Found, look_up: Callable[[str], Field | None] = field_of
) -> None:
    """Judge the readings of any number of GPUs, each by itself, in the order of the document.

    Args:
        readings: What was read.
        found: Where the result goes.
        look_up: What a path stands for.
    """
    gpus: dict[str | None, list[Value]] = {}
    unanswered: set[tuple[str | None, str]] = set()
    for reading in readings:
        if _UNANSWERED.fullmatch(reading.value):
            _unanswered(reading, unanswered, found)
        field = look_up(reading.path)
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
    found.health += sum(value.field not in _NO_HEALTH for value in values)
    gpu = Gpu(values)
    seer = _Seer(gpu, found)
    for judge in (_rows, _pages, _ecc, _recovery, _clocks, _links):
        judge(gpu, seer)


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


def _rows(gpu: Gpu, seer: _Seer) -> None:
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


def _pages(gpu: Gpu, seer: _Seer) -> None:
    retired = gpu.total(Field.RETIRED_SBE) + gpu.total(Field.RETIRED_DBE)
    if retired >= RETIRED_PAGES_MAX:
        more = Field.RETIRED_DBE if gpu.total(Field.RETIRED_DBE) else Field.RETIRED_SBE
        seer.see("nvidia.retired_pages.limit", more, f"{retired:.0f} retired pages, the limit is {RETIRED_PAGES_MAX}")
    elif gpu.yes(Field.RETIRED_PENDING):
        seer.see("nvidia.retired_pages.pending", Field.RETIRED_PENDING)


def _ecc(gpu: Gpu, seer: _Seer) -> None:
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


def _clocks(gpu: Gpu, seer: _Seer) -> None:
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


def _links(gpu: Gpu, seer: _Seer) -> None:
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
