"""Names of NVIDIA's values in nvidia-smi's text and XML: the same value has the same field, whoever prints it."""

import re
from enum import StrEnum


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


def field_of(path: str) -> Field | None:
    """Return what a path of nvidia-smi's text or XML stands for; None for what says nothing about health."""
    return next((field for pattern, field in _FIELDS if pattern.fullmatch(path)), None)
