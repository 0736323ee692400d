"""`python -m fleetd.sim.vendorlibs.amd_layout`: the C header with sizes and offsets of the amdsmi binding's structures.

They are taken from the binding's own ctypes, so that the fake library and the binding cannot differ. Needs a library
that the binding can load.
"""

import ctypes
import sys
from collections.abc import Iterator
from typing import Any

STRUCTURES = (
    "amdsmi_gpu_metrics_t",
    "amdsmi_power_info_t",
    "amdsmi_power_cap_info_t",
    "amdsmi_error_count_t",
    "amdsmi_asic_info_t",
    "amdsmi_vram_usage_t",
    "amdsmi_engine_usage_t",
    "amdsmi_clk_info_t",
    "amdsmi_pcie_info_t",
    "amdsmi_vbios_info_t",
    "amdsmi_driver_info_t",
    "amdsmi_xgmi_link_status_t",
    "amdsmi_fw_info_t",
    "amdsmi_retired_page_record_t",
    "amdsmi_proc_info_t",
)


def _fields(structure: Any, at: int = 0, prefix: str = "") -> Iterator[tuple[str, int, int, int]]:
    """(name, offset, width, count) of each plain member, nested ones flattened (`list0.member`)."""
    for name, declared, *bits in structure._fields_:
        if bits or name.startswith(("PADDING", "reserved")):
            continue
        offset, kind, count = at + getattr(structure, name).offset, declared, 1
        if issubclass(declared, ctypes.Array):
            kind, count = declared._type_, declared._length_
        if issubclass(kind, ctypes.Structure):
            for place in range(count):
                label = f"{prefix}{name}{place if count > 1 else ''}."
                yield from _fields(kind, offset + place * ctypes.sizeof(kind), label)
        elif not issubclass(kind, ctypes.Union):
            yield prefix + name, offset, ctypes.sizeof(kind), count


def layout() -> str:
    """The C header with sizes and offsets of the binding's structures; needs a library that the binding can load."""
    from amdsmi import amdsmi_wrapper as binding  # noqa: PLC0415 - loads the library

    lines = [f"#define SIZE_{name} {ctypes.sizeof(getattr(binding, name))}" for name in STRUCTURES]
    lines.append("static const struct field FIELDS[] = {")
    for structure in STRUCTURES:
        for name, offset, width, count in _fields(getattr(binding, structure)):
            lines.append(f'  {{"{structure}", "{name}", {offset}, {width}, {count}}},')
    return "\n".join([*lines, "  {0, 0, 0, 0, 0}};"])


if __name__ == "__main__":
    sys.stdout.write(layout())
