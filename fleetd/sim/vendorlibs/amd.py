"""The fake `libamd_smi.so` (`amd_smi.c`): what its GPUs are, and how it is built."""

import hashlib
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from fleetd.sim.vendorlibs import scenario
from fleetd.sim.vendorlibs.libraries import SOURCES, NoFakeLibrary, compile_library, private, run

SCENARIO_VARIABLE = "FAKE_AMD_SMI"

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

LIVELY: Mapping[str, object] = {
    "power_info.current_socket_power": "690 ~ 12",
    "energy_count": "1000000 + 45098039",
    "process_list": 0,  # the numbers of made-up processes may be those of real ones
    "metrics_info.current_socket_power": "690 ~ 12",
    "metrics_info.temperature_hotspot": "61 ~ 3",
    "metrics_info.temperature_mem": "48 ~ 2",
    "metrics_info.average_gfx_activity": "96 ~ 3",
    "metrics_info.average_umc_activity": "40 ~ 3",
    "metrics_info.current_gfxclks": "2000 ~ 60",
    "metrics_info.energy_accumulator": "1000000 + 45098039",
    "metrics_info.firmware_timestamp": "100000000 + 100000000",
    "metrics_info.accumulation_counter": "100000 + 1000",
    "metrics_info.gfx_activity_acc": "50000 + 96000",
    "metrics_info.mem_activity_acc": "20000 + 40000",
    "metrics_info.ppt_residency_acc": "2500 + 25",
    "metrics_info.xgmi_read_data_acc": "1000 + 3000000",
    "metrics_info.xgmi_write_data_acc": "2000 + 3000000",
}
"""What moves on a GPU at work, as `moving.h` reads it."""
SICK: Mapping[str, object] = {
    "total_ecc_count.uncorrectable_count": 3,
    "ecc_count_1.uncorrectable_count": 3,
}
"""Uncorrected errors of the memory controllers."""


class Scenario(scenario.Scenario):
    """The file that the fake follows."""

    def __init__(
        self,
        file: Path,
        *,
        gpus: int = 2,
        part: Mapping[str, object] = MI300X,
        names: Sequence[str] = (),
        domain: int = 0,
    ) -> None:
        """Write a host of equal parts.

        Args:
            file: is replaced.
            gpus: how many.
            part: what each of them answers.
            names: UUIDs of the GPUs; made up like the vendor's when there are none.
            domain: PCI domain of the GPUs.
        """
        each = [
            {"device_uuid": names[gpu] if names else uuid_of(gpu), "device_bdf": bdf_of(gpu, domain)}
            for gpu in range(gpus)
        ]
        super().__init__(file, library={}, every=part, each=each)


def uuid_of(gpu: int) -> str:
    """UUID of a GPU of a scenario."""
    return f"{gpu:02x}ff74a1-0000-1000-80{gpu:02x}-112233445566"


def bdf_of(gpu: int, domain: int = 0) -> str:
    """PCI address of a GPU of a scenario."""
    return f"{domain:04x}:{gpu * 16 + 12:02x}:00.0"


def build(folder: Path) -> Path:
    """What `ROCM_HOME` must name; built if there is none of this source and this binding yet.

    Args:
        folder: keeps what was built. Several processes may build there at a time.

    Raises:
        NoFakeLibrary: it cannot be built or loaded, or the binding is not installed.
    """
    spec = find_spec("amdsmi")
    if spec is None or spec.origin is None:
        raise NoFakeLibrary("amdsmi is not installed: pip install 'fleetd[amd]'")
    wrapper = Path(spec.origin).with_name("amdsmi_wrapper.py").read_text(encoding="utf-8")
    sources = [SOURCES / name for name in ("amd_smi.c", "scenario.h", "moving.h", "amd.py", "amd_layout.py")]
    text = wrapper.encode() + b"".join(source.read_bytes() for source in sources)
    name = f"amd-{hashlib.blake2b(text, digest_size=8).hexdigest()}"
    home = private(folder) / name
    if not (home / "lib" / "libamd_smi.so").exists():
        work = folder / f"{name}.{os.getpid()}"
        shutil.rmtree(work, ignore_errors=True)  # of a build that was killed, by a process of the same number
        _build_in(work, wrapper)
        try:
            work.rename(home)
        except OSError as error:  # another process was faster
            shutil.rmtree(work, ignore_errors=True)
            if not (home / "lib" / "libamd_smi.so").exists():
                raise NoFakeLibrary(f"{home}: {error.strerror}; remove it") from error
    return home


def _build_in(work: Path, wrapper: str) -> None:
    bare = work / "bare"
    for folder in (work, work / "lib", bare, bare / "lib"):
        private(folder)
    wanted = sorted(set(re.findall(r"_libraries\['libamd_smi\.so'\]\.(\w+)", wrapper)))
    # First a library of names only: with it the binding can be imported and asked for its structures.
    names = "".join(f"int {name}(void) {{ return 2; }}\n" for name in wanted)
    (bare / "names.c").write_text(names, encoding="utf-8")
    compile_library(bare / "names.c", bare / "lib" / "libamd_smi.so")
    command = [sys.executable, "-P", "-m", "fleetd.sim.vendorlibs.amd_layout"]
    asked = run("asking amdsmi for its structures", command, environ=environ(Path(os.devnull), bare, os.environ))
    (work / "amd_layout.h").write_text(asked, encoding="utf-8")
    source = (SOURCES / "amd_smi.c").read_text(encoding="utf-8")
    own = set(re.findall(r"^int (amdsmi_\w+)\(", source, re.MULTILINE))
    own |= set(re.findall(r"^STRUCTURE\((amdsmi_\w+),", source, re.MULTILINE))
    rest = "".join(f"UNSUPPORTED({name})\n" for name in wanted if name not in own)
    (work / "amd_rest.h").write_text(rest, encoding="utf-8")
    compile_library(SOURCES / "amd_smi.c", work / "lib" / "libamd_smi.so", f"-I{work}")
    shutil.rmtree(bare)


def environ(scenario_file: Path, library: Path, base: Mapping[str, str]) -> dict[str, str]:
    """The environment of a process whose binding shall find the fake: it asks ROCM_HOME first."""
    return {**base, "ROCM_HOME": str(library), SCENARIO_VARIABLE: str(scenario_file)}
