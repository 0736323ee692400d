"""`nvidia-smi --query-gpu=… --format=csv`: a line of names, then a line of values for each GPU."""

import re
from collections.abc import Iterator, Sequence

from fleetd.core.faults.documents.found import Found, Reading
from fleetd.core.faults.documents.nvidia_fields import Field
from fleetd.core.faults.documents.nvidia_smi import Line
from fleetd.core.faults.documents.nvidia_values import judge_readings

MARKS = (
    "ecc.errors.", "remapped_rows.", "retired_pages.", "clocks_event_reasons.", "clocks_throttle_reasons.",
    "gpu_recovery_action", "reset_status.",
)  # fmt: skip
"""What a text with something of this has one of, in lower case; looked for before anything is read."""

_SRAM = r"(?:sram(?:_\w+)?|l1_cache|l2_cache|register_file|cbu|texture_memory|texture_shared)"
"""Memory on the chip, as drivers before R450 break it down."""
_NAMES: tuple[tuple[re.Pattern[str], Field], ...] = tuple(
    (re.compile(pattern), field)
    for pattern, field in (
        (r"remapped_rows_uncorrectable", Field.REMAP_UNCORRECTABLE),
        (r"remapped_rows_correctable", Field.REMAP_CORRECTABLE),
        (r"remapped_rows_pending", Field.REMAP_PENDING),
        (r"remapped_rows_failure", Field.REMAP_FAILURE),
        (r"remapped_rows_histogram_none", Field.REMAP_BANKS_NONE),
        (r"retired_pages_(?:multiple_)?single_bit_ecc_count|retired_pages_sbe", Field.RETIRED_SBE),
        (r"retired_pages_double_bit(?:_ecc)?_count|retired_pages_dbe", Field.RETIRED_DBE),
        (r"retired_pages_pending", Field.RETIRED_PENDING),
        (r".*sram_?threshold_?exceeded", Field.SRAM_THRESHOLD),
        (r"ecc_errors_uncorrected_volatile_(?:dram|device_memory|total)", Field.VOLATILE_DRAM_UE),
        (r"ecc_errors_uncorrected_volatile_" + _SRAM, Field.VOLATILE_SRAM_UE),
        (r"ecc_errors_uncorrected_aggregate_(?:dram|device_memory|total)", Field.AGGREGATE_DRAM_UE),
        (r"ecc_errors_uncorrected_aggregate_" + _SRAM, Field.AGGREGATE_SRAM_UE),
        (r"gpu_recovery_action", Field.RECOVERY_ACTION),
        (r"reset_status_reset_required", Field.RESET_REQUIRED),
        (r"reset_status_drain_and_reset_recommended", Field.DRAIN_RECOMMENDED),
        (r"clocks_(?:event|throttle)_reasons_hw_slowdown", Field.HW_SLOWDOWN),
        (r"clocks_(?:event|throttle)_reasons_hw_thermal_slowdown", Field.HW_THERMAL),
        (r"clocks_(?:event|throttle)_reasons_hw_power_brake_slowdown", Field.HW_POWER_BRAKE),
        (r"clocks_(?:event|throttle)_reasons_sw_thermal_slowdown", Field.SW_THERMAL),
    )
)
"""Names of queried values with `_` for `.`, as exporters have them too."""

_NAME = re.compile(r"[a-z][a-z0-9_.]{1,60}(?: \[[^\]]{1,8}\])?")
_DEVICE = ("pci.bus_id", "gpu_bus_id", "uuid", "gpu_uuid", "index")
"""Columns that name the GPU, the best first."""


def field_of_name(name: str) -> Field | None:
    """Return what a queried value stands for; None for what says nothing about health."""
    return next((field for pattern, field in _NAMES if pattern.fullmatch(name)), None)


def read_text(lines: Sequence[Line], found: Found) -> set[int]:
    """Read every table among the lines; return the numbers of the lines that were understood."""
    claimed: set[int] = set()
    judge_readings(_readings(lines, claimed, found), found, lambda path: field_of_name(path.replace(".", "_")))
    return claimed


def _readings(lines: Sequence[Line], claimed: set[int], found: Found) -> Iterator[Reading]:
    names: list[str] = []
    for line_number, line in lines:
        cells = [cell.strip() for cell in line.split(",")]
        if _is_head(cells):
            names = [cell.split(" ")[0] for cell in cells]
        elif names and len(cells) == len(names):
            row = dict(zip(names, cells, strict=True))
            device = next((row[name] for name in _DEVICE if row.get(name)), None)
            device = f"GPU {device}" if device is not None and device.isdigit() else device
            for name, value in row.items():
                yield Reading(device=device, path=name, value=value, line=line_number, text=line)
        else:
            names = []
            continue
        claimed.add(line_number)
        found.values += 1


def _is_head(cells: Sequence[str]) -> bool:
    return all(_NAME.fullmatch(cell) for cell in cells) and any(
        mark.strip(".") in cell for cell in cells for mark in MARKS
    )
