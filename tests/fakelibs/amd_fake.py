"""Builds the fake `libamd_smi.so` with gcc, and writes the scenario that it follows (its format: `amd_smi.c`).

What the fake knows of the binding's structures is taken from the binding's own ctypes, so that the two cannot differ.
"""

import ctypes
import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_name("amd_smi.c")
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
_LAYOUT_PY = "import sys; sys.path.insert(0, sys.argv[1]); from tests.fakelibs.amd_fake import layout; print(layout())"

MI300X: Mapping[str, object] = {
    "asic_info.market_name": "AMD Instinct MI300X",
    "asic_info.vendor_name": "Advanced Micro Devices Inc. [AMD/ATI]",
    "asic_info.asic_serial": "1122334455667788",
    "asic_info.device_id": 0x74A1,
    "asic_info.vendor_id": 0x1002,
    "power_info.current_socket_power": 412,
    "power_info.average_socket_power": 0xFFFF,
    "power_info.power_limit": 750000000,
    "power_cap_info.power_cap": 750000000,
    "power_cap_info.default_power_cap": 750000000,
    "power_cap_info.min_power_cap": 0,
    "power_cap_info.max_power_cap": 750000000,
    "vram_usage.vram_total": 196592,
    "vram_usage.vram_used": 1024,
    "total_ecc_count.correctable_count": 5,
    "total_ecc_count.uncorrectable_count": 0,
    "total_ecc_count.deferred_count": 1,
    "ecc_count_1.correctable_count": 4,
    "ecc_count_1.uncorrectable_count": 0,
    "ecc_count_1.deferred_count": 1,
    "ecc_count_4.correctable_count": 1,
    "ecc_count_4.uncorrectable_count": 0,
    "ecc_count_4.deferred_count": 0,
    "energy_count": 1000000,
    "energy_resolution": 15.3,
    "clock_info_0.clk": 2100,
    "clock_info_0.min_clk": 132,
    "clock_info_0.max_clk": 2100,
    "clock_info_4.clk": 1300,
    "clock_info_4.min_clk": 900,
    "clock_info_4.max_clk": 1300,
    "pcie_info.pcie_static.max_pcie_width": 16,
    "pcie_info.pcie_static.max_pcie_speed": 32000,
    "pcie_info.pcie_metric.pcie_width": 16,
    "pcie_info.pcie_metric.pcie_speed": 32000,
    "pcie_info.pcie_metric.pcie_replay_count": 2,
    "pcie_info.pcie_metric.pcie_nak_sent_count": 0,
    "pcie_info.pcie_metric.pcie_nak_received_count": 0,
    "pcie_info.pcie_metric.pcie_l0_to_recovery_count": 3,
    "bad_page_info.pages": 0,
    "process_list": 1,
    "compute_partition": "SPX",
    "memory_partition": "NPS1",
    "vbios_info.version": "022.040.003.043.000001",
    "vbios_info.part_number": "113-M3000100-103",
    "driver_info.driver_version": "6.12.12",
    "driver_info.driver_name": "amdgpu",
    "xgmi_error_status": 0,
    "xgmi_link_status.total_links": 8,
    "xgmi_link_status.status": 1,
    "xgmi_link_status.status/7": 2,
    "fw_info.num_fw_info": 1,
    "fw_info.fw_info_list0.fw_id": 1,
    "fw_info.fw_info_list0.fw_version": 0x55390E00,
    "metrics_info.common_header.format_revision": 1,
    "metrics_info.common_header.content_revision": 6,
    "metrics_info.temperature_hotspot": 61,
    "metrics_info.temperature_mem": 48,
    "metrics_info.average_gfx_activity": 97,
    "metrics_info.average_umc_activity": 40,
    "metrics_info.energy_accumulator": 1000000,
    "metrics_info.firmware_timestamp": 100000000,
    "metrics_info.current_socket_power": 412,
    "metrics_info.current_uclk": 1300,
    "metrics_info.current_gfxclks": 2100,
    "metrics_info.gfx_activity_acc": 50000,
    "metrics_info.mem_activity_acc": 20000,
    "metrics_info.pcie_link_width": 16,
    "metrics_info.pcie_link_speed": 320,
    "metrics_info.pcie_bandwidth_acc": 7,
    "metrics_info.pcie_replay_count_acc": 2,
    "metrics_info.accumulation_counter": 100000,
    "metrics_info.prochot_residency_acc": 0,
    "metrics_info.ppt_residency_acc": 2500,
    "metrics_info.socket_thm_residency_acc": 10,
    "metrics_info.vr_thm_residency_acc": 0,
    "metrics_info.hbm_thm_residency_acc": 0,
    "metrics_info.xgmi_link_width": 16,
    "metrics_info.xgmi_link_speed": 32,
    "metrics_info.xgmi_read_data_acc": 1000,
    "metrics_info.xgmi_write_data_acc": 2000,
    "metrics_info.num_partition": 1,
}
"""A busy MI300X on a healthy host: what each call answers, in the library's units."""


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


def build(folder: Path) -> Path:
    """Build the library below a folder; returns what `ROCM_HOME` must name. Safe to call from several processes."""
    spec = find_spec("amdsmi")
    assert spec is not None, "the amdsmi binding is not installed"
    assert spec.origin is not None
    wrapper = Path(spec.origin).with_name("amdsmi_wrapper.py").read_text(encoding="utf-8")
    wanted = sorted(set(re.findall(r"_libraries\['libamd_smi\.so'\]\.(\w+)", wrapper)))
    source = SOURCE.read_text(encoding="utf-8")
    digest = hashlib.blake2b((wrapper + source + Path(__file__).read_text("utf-8")).encode(), digest_size=8).hexdigest()
    home = folder / f"amd-smi-{digest}"
    if (home / "lib" / "libamd_smi.so").exists():
        return home
    work = folder / f"amd-smi-{digest}.{os.getpid()}"
    bare = work / "bare"
    (bare / "lib").mkdir(parents=True)
    (work / "lib").mkdir()
    # First a library of names only: with it the binding can be imported and asked for its structures.
    names = "".join(f"int {name}(void) {{ return 2; }}\n" for name in wanted)
    (bare / "names.c").write_text(names, encoding="utf-8")
    _gcc(bare / "names.c", bare / "lib" / "libamd_smi.so")
    root = str(SOURCE.parents[2])
    asked = subprocess.run(
        [sys.executable, "-c", _LAYOUT_PY, root], env={**os.environ, "ROCM_HOME": str(bare)}, check=True, stdout=-1
    )
    (work / "amd_layout.h").write_bytes(asked.stdout)
    own = set(re.findall(r"^int (amdsmi_\w+)\(", source, re.MULTILINE)) | set(
        re.findall(r"^STRUCTURE\((amdsmi_\w+),", source, re.MULTILINE)
    )
    rest = "".join(f"UNSUPPORTED({name})\n" for name in wanted if name not in own)
    (work / "amd_rest.h").write_text(rest, encoding="utf-8")
    _gcc(SOURCE, work / "lib" / "libamd_smi.so", f"-I{work}")
    try:
        work.rename(home)
    except OSError:  # another process was faster
        assert (home / "lib" / "libamd_smi.so").exists()
    return home


def _gcc(source: Path, library: Path, *options: str) -> None:
    command = ["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", *options]
    subprocess.run([*command, str(source), "-o", str(library)], check=True)


class Scenario:
    """The file that the fake follows. Each change is seen by the next call."""

    def __init__(self, file: Path, *, gpus: int = 2, part: Mapping[str, object] = MI300X) -> None:
        self.file = file
        self._lines: dict[tuple[str, str], object] = {("lib", "count"): gpus}
        self._lines |= {("*", name): value for name, value in part.items()}
        for gpu in range(gpus):
            self._lines[str(gpu), "device_uuid"] = uuid_of(gpu)
            self._lines[str(gpu), "device_bdf"] = bdf_of(gpu)
        self.set()

    def set(self, who: object = "lib", **values: object) -> None:
        """Say what `who` (`lib`, `*` or a GPU's number) answers; None takes a line away. `__` stands for a dot."""
        self.put(who, {name.replace("__", "."): value for name, value in values.items()})

    def put(self, who: object, values: Mapping[str, object]) -> None:
        """The same for names that are no Python names."""
        for name, value in values.items():
            self._lines.pop((str(who), name), None)  # what is said last must stand last
            if value is not None:
                self._lines[str(who), name] = value
        text = "".join(f"{who} {name} = {value}\n" for (who, name), value in self._lines.items())
        fresh = self.file.with_suffix(".new")
        fresh.write_text(text, encoding="utf-8")
        fresh.rename(self.file)

    def let_go(self) -> None:
        """End every hang."""
        Path(f"{self.file}.go").touch()

    def calls(self) -> list[str]:
        """`WHO WHAT` of every call so far."""
        calls = Path(f"{self.file}.calls")
        return calls.read_text(encoding="utf-8").splitlines() if calls.exists() else []


def uuid_of(gpu: int) -> str:
    """UUID of a GPU of a scenario."""
    return f"{gpu:02x}ff74a1-0000-1000-80{gpu:02x}-112233445566"


def bdf_of(gpu: int) -> str:
    """PCI address of a GPU of a scenario."""
    return f"0000:{gpu * 16 + 12:02x}:00.0"
