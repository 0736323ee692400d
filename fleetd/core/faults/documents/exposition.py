"""Prometheus text: dcgm-exporter, nvidia_gpu_exporter, AMD's device-metrics-exporter and RDC-like exporters.

A scrape is a state, not an event: the gauge of the last XID may be weeks old, so the kernel log is the better witness.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fleetd.core.faults.documents.amd_values import judge_afid, judge_ras
from fleetd.core.faults.documents.found import Found, number
from fleetd.core.faults.documents.nvidia_fields import Field
from fleetd.core.faults.documents.nvidia_query import field_of_name
from fleetd.core.faults.documents.nvidia_smi import Line
from fleetd.core.faults.documents.nvidia_values import Value, judge_values
from fleetd.core.policy import Action
from fleetd.model.finding import Severity

MARKS = (
    "# help ", "# type ", "dcgm_fi_", "dcgm_exp_", "nvidia_smi_", "gpu_health", "gpu_afid", "gpu_ecc_", 'gpu_id="',
    "rocm_ras_",
)  # fmt: skip
"""What a text with something of this has one of, in lower case; looked for before anything is read."""

_SAMPLE = re.compile(
    r"\s*(?P<name>[A-Za-z_:][\w:]{0,200})\s*"
    r'(?:\{(?P<labels>(?:[^}"]|"(?:[^"\\]|\\.)*"){0,4000})\})?\s+'
    r"(?P<value>[+-]?[\w.+-]{1,40})"
    r"(?:\s+-?\d{1,20})?\s*$"
)
_LABEL = re.compile(r'(?P<key>[A-Za-z_]\w*)\s*=\s*"(?P<value>(?:[^"\\]|\\.)*)"')
_PREFIXED = re.compile(r"\w+?_(gpu_(?:health|afid_errors|ecc_(?:correct|uncorrect|deferred)_\w+))")
"""AMD's exporter puts a prefix of the site's choice before its names."""
_COMMENT = re.compile(r"\s*#\s*(?:HELP|TYPE|EOF|UNIT)\b")

# DCGM's older and newer names of one field differ; both stand for it.
_DCGM = {
    "ROW_REMAP_FAILURE": Field.REMAP_FAILURE,
    "ROW_REMAP_FAILED": Field.REMAP_FAILURE,
    "ROW_REMAP_PENDING": Field.REMAP_PENDING,
    "UNCORRECTABLE_REMAPPED_ROWS": Field.REMAP_UNCORRECTABLE,
    "ROW_REMAP_UNCORRECTABLE_TOTAL": Field.REMAP_UNCORRECTABLE,
    "CORRECTABLE_REMAPPED_ROWS": Field.REMAP_CORRECTABLE,
    "ROW_REMAP_CORRECTABLE_TOTAL": Field.REMAP_CORRECTABLE,
    "BANKS_REMAP_ROWS_AVAIL_NONE": Field.REMAP_BANKS_NONE,
    "BANK_REMAP_AVAIL_NONE": Field.REMAP_BANKS_NONE,
    "RETIRED_SBE": Field.RETIRED_SBE,
    "PAGE_RETIRED_SBE_TOTAL": Field.RETIRED_SBE,
    "RETIRED_DBE": Field.RETIRED_DBE,
    "PAGE_RETIRED_DBE_TOTAL": Field.RETIRED_DBE,
    "RETIRED_PENDING": Field.RETIRED_PENDING,
    "PAGE_RETIRED_PENDING": Field.RETIRED_PENDING,
    "ECC_DBE_VOL_TOTAL": Field.VOLATILE_DRAM_UE,
    "ECC_DBE_AGG_TOTAL": Field.AGGREGATE_DRAM_UE,
    "ECC_DBE_VOL_SRM": Field.VOLATILE_SRAM_UE,
    "ECC_DBE_AGG_SRM": Field.AGGREGATE_SRAM_UE,
    "THRESHOLD_SRM": Field.SRAM_THRESHOLD,
    "GPU_RECOVERY_ACTION": Field.RECOVERY_ACTION,
    "GET_GPU_RECOVERY_ACTION": Field.RECOVERY_ACTION,
}
_REASON_BITS = {
    0x08: Field.HW_SLOWDOWN,
    0x20: Field.SW_THERMAL,
    0x40: Field.HW_THERMAL,
    0x80: Field.HW_POWER_BRAKE,
}
"""Bits of NVML's clock event reasons (`nvml.h`): DCGM exports them as one number."""

_FABRIC_FAILED = 4
"""`dcgmFabricManagerStatus_t`: 0 unsupported, 1 not started, 2 in progress, 3 success, 4 failure."""
_FABRIC_WAITING = (1, 2)
_THERMAL = re.compile(r"gpu_violation_(processor_hot|socket_thermal|vr_thermal|hbm_thermal)_residency_percentage")
_ECC = re.compile(r"(?:gpu_ecc_(?P<kind>correct|uncorrect|deferred)_(?P<block>\w+)"
                  r"|rocm_ras_(?P<rocm>\w+?)_(?P<rocm_kind>correctable|uncorrectable|deferred)_count)")  # fmt: skip
_REASONS = re.compile(
    r"DCGM_FI_DEV_CLOCKS?_(?:THROTTLE|EVENT)_REASONS?|nvidia_smi_clocks_(?:throttle|event)_reasons_active"
)
_DCGM_NAME = re.compile(r"DCGM_(?:FI_DEV|FI_PROF|EXP)_(?P<field>\w+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One sample of the exposition."""

    name: str
    labels: Mapping[str, str]
    value: str
    line: int
    text: str

    @property
    def device(self) -> str | None:
        """The most lasting name that the labels give the GPU."""
        for key in ("pci_bus_id", "UUID", "uuid", "gpu_uuid"):
            if self.labels.get(key):
                return self.labels[key]
        for key in ("gpu_id", "gpu", "card", "device", "serial_number"):
            if self.labels.get(key):
                return f"GPU {self.labels[key]}" if self.labels[key].isdigit() else self.labels[key]
        return None


def read(lines: Sequence[Line], found: Found) -> set[int]:
    """Read samples of known exporters; return the numbers of the lines that were understood."""
    claimed: set[int] = set()
    nvidia: dict[str | None, list[Value]] = {}
    ras: dict[str | None, list[tuple[str, str, Sample]]] = {}
    for line_number, line in lines:
        if _COMMENT.match(line):
            claimed.add(line_number)
            continue
        sample = _sample(line_number, line)
        if sample is None:
            continue
        claimed.add(line_number)
        if not sample.name.startswith(_FAMILIES):
            continue
        found.values += 1
        nvidia.setdefault(sample.device, []).extend(_nvidia(sample))
        error = _ECC.fullmatch(sample.name)
        if error is not None:
            block, kind = error["block"] or error["rocm"], error["kind"] or error["rocm_kind"]
            ras.setdefault(sample.device, []).append((block, _KINDS[kind], sample))
        elif number(sample.value) is not None:
            _single(sample, found)
    for values in nvidia.values():
        judge_values(values, found)
    for device, counts in ras.items():
        judge_ras(device, [(b, k, number(s.value), s.line, s.text) for b, k, s in counts], found)
    return claimed


_FAMILIES = ("DCGM_", "nvidia_", "gpu_", "rocm_", "amd_", "pcie_", "amdgpu_", "rdc_")
_KINDS = {
    "correct": "ce",
    "correctable": "ce",
    "uncorrect": "ue",
    "uncorrectable": "ue",
    "deferred": "de",
}


def _sample(line_number: int, line: str) -> Sample | None:
    match = _SAMPLE.match(line)
    if match is None or (match["labels"] is None and not match["name"].startswith(_FAMILIES)):
        return None
    name = prefixed[1] if (prefixed := _PREFIXED.fullmatch(match["name"])) is not None else match["name"]
    labels = {label["key"]: label["value"] for label in _LABEL.finditer(match["labels"] or "")}
    return Sample(name=name, labels=labels, value=match["value"], line=line_number, text=line)


def _nvidia(sample: Sample) -> list[Value]:
    """The values that nvidia-smi would have shown too."""
    count = number(sample.value)
    if count is None:
        return []
    fields: list[Field] = []
    dcgm = _DCGM_NAME.fullmatch(sample.name)
    if dcgm is not None and dcgm["field"] in _DCGM:
        fields = [_DCGM[dcgm["field"]]]
    elif _REASONS.fullmatch(sample.name):
        fields = [field for bit, field in _REASON_BITS.items() if int(max(count, 0)) & bit]
    elif sample.name.startswith("nvidia_smi_"):
        short = sample.name.removeprefix("nvidia_smi_")
        field = field_of_name(short)
        fields = [] if field is None else [field]
    return [
        Value(field=field, device=sample.device, value=sample.value, line=sample.line, text=sample.text)
        for field in fields
    ]


def _single(sample: Sample, found: Found) -> None:
    """Samples that say something by themselves."""
    count = number(sample.value) or 0.0
    if not count and sample.name != "gpu_health":
        return
    for pattern, judge in _SINGLE:
        if pattern.fullmatch(sample.name):
            judge(sample, count, found)
            return


def _xid_gauge(sample: Sample, count: float, found: Found) -> None:
    # The label names the code where the value counts; else the value is the code. An info label `err_code` says it too.
    labelled = sample.labels.get("xid", sample.labels.get("err_code", ""))
    code = int(labelled) if labelled.isdigit() else int(count)
    why = "from an exporter: the last code the driver reported, of any age; the kernel log has when"
    if 0 < code < 1000:  # noqa: PLR2004 - an XID has at most three digits
        found.see(f"nvidia.xid.{code}", sample.device, sample.line, sample.text, why=why)


def _sxid(sample: Sample, count: float, found: Found) -> None:
    fatal = "NON_FATAL" not in sample.name
    why = "fatal, says the exporter" if fatal else "not fatal, says the exporter"
    action, severity = (None, Severity.FATAL) if fatal else (Action.NONE, Severity.INFO)
    found.see(f"nvidia.sxid.{int(count)}", sample.device, sample.line, sample.text, why=why, action=action,
              severity=severity)  # fmt: skip


def _nvlink(sample: Sample, count: float, found: Found) -> None:
    name = sample.name.lower()
    kind = "recovery" if "recovery" in name else "replay" if "replay" in name else "crc"
    # Counters of a life: their growth would tell, one scrape cannot.
    found.see(f"nvidia.nvlink.{kind}", sample.device, sample.line, sample.text, why=f"{count:.0f} so far",
              action=Action.MONITOR, severity=Severity.WARNING)  # fmt: skip


def _fabric(sample: Sample, count: float, found: Found) -> None:
    if count == _FABRIC_FAILED:
        found.see("nvidia.fabric.failed", sample.device, sample.line, sample.text)
    elif count in _FABRIC_WAITING:
        found.see("nvidia.fabric.not_ready", sample.device, sample.line, sample.text)


def _afid(sample: Sample, count: float, found: Found) -> None:
    severity = sample.labels.get("severity", "")
    judge_afid(int(count), severity, device=sample.device, line=sample.line, text=sample.text, found=found)


def _health(sample: Sample, count: float, found: Found) -> None:
    if count == 0:
        found.see("amd.exporter.unhealthy", sample.device, sample.line, sample.text)


def _thermal(sample: Sample, count: float, found: Found) -> None:
    found.see("amd.throttle.thermal", sample.device, sample.line, sample.text, why=f"{count:g} % of the time")


def _scrape(sample: Sample, count: float, found: Found) -> None:
    found.see("nvidia.smi.failed", None, sample.line, sample.text, why=f"{sample.name} is {count:g}")


_SINGLE: tuple[tuple[re.Pattern[str], Callable[[Sample, float, Found], None]], ...] = tuple(
    (re.compile(pattern), judge)
    for pattern, judge in (
        (r"DCGM_FI_DEV_XID_ERRORS?|DCGM_EXP_XID_ERRORS_COUNT|nvidia_smi_xid_errors_total", _xid_gauge),
        (r"DCGM_FI_DEV_(?:NVSWITCH_)?SXID_(?:NON_)?FATAL_ERRORS?|DCGM_FI_DEV_NVSWITCH_(?:NON_)?FATAL_ERRORS", _sxid),
        (r"DCGM_FI_DEV_NVLINK_(?:CRC_FLIT|CRC_DATA|REPLAY|RECOVERY)_ERROR_COUNT_TOTAL", _nvlink),
        (r"DCGM_FI_DEV_FABRIC_MANAGER_STATUS", _fabric),
        (r"gpu_afid_errors", _afid),
        (r"gpu_health", _health),
        (_THERMAL.pattern, _thermal),
        (r"nvidia_smi_command_exit_code", _scrape),
    )
)
