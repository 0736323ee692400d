"""Each reader on small outputs: what it must see, and what it must not invent."""

import pytest

from fleetd.core.faults.documents.dcgm_errors import NAMES, code_of_name
from fleetd.core.faults.documents.found import number
from fleetd.core.faults.documents.read import read
from fleetd.core.policy import Action
from tests.faults.make_documents import catalogue, scan

A100 = "GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-0)\n         Link 0: 25 GB/s\n         Link 1: 25 GB/s\n"


def codes(text: str, wanted: str | None = None) -> dict[str, Action]:
    return {finding.alias: finding.action for finding in scan(text, wanted).findings}


def smi(section: str, **values: str) -> str:
    lines = "".join(f"        {name.replace('_', ' '):<34}: {value}\n" for name, value in values.items())
    return f"GPU 00000000:17:00.0\n    {section}\n{lines}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (smi("Remapped Rows", Uncorrectable_Error="1", Pending="No", Remapping_Failure_Occurred="Yes"),
         {"REMAP_FAILURE": Action.REPLACE}),
        (smi("Remapped Rows", Uncorrectable_Error="1", Pending="No", Remapping_Failure_Occurred="No"),
         {"ROWS_REMAPPED": Action.MONITOR}),
        (smi("Remapped Rows", Correctable_Error="0", Pending="No", Remapping_Failure_Occurred="No"), {}),
        (smi("Retired Pages", Single_Bit_ECC="30", Double_Bit_ECC="29", Pending_Page_Blacklist="No"), {}),
        (smi("Retired Pages", Single_Bit_ECC="31", Double_Bit_ECC="29", Pending_Page_Blacklist="No"),
         {"RETIRED_PAGES": Action.REPLACE}),
        (smi("Retired Pages", Single_Bit_ECC="N/A", Double_Bit_ECC="N/A", Pending_Page_Blacklist="N/A"), {}),
        (smi("GPU Reset Status", Reset_Required="Yes", Drain_and_Reset_Recommended="No"),
         {"GPU_REQUIRES_RESET": Action.RESET_GPU}),
        (smi("Fabric", State="Completed", Status="Success"), {}),
        (smi("Fabric", State="N/A", Status="N/A"), {}),
        (smi("Fabric", State="In Progress", Status="N/A"), {"FABRIC_NOT_READY": Action.MONITOR}),
        (smi("Fabric", State="Completed", Status="Initialization Failure"), {"FABRIC_FAILED": Action.RESET_GPU}),
        (smi("Clocks Throttle Reasons", Idle="Active", HW_Slowdown="Not Active", SW_Power_Cap="Active"), {}),
        (smi("Clocks Throttle Reasons", HW_Slowdown="Active"), {"HW_SLOWDOWN": Action.MONITOR}),
        ("GPU 00000000:17:00.0\n    GPU Recovery Action               : None\n", {}),
        ("GPU 00000000:17:00.0\n    GPU Recovery Action               : Reboot\n", {"RECOVERY_ACTION": Action.REBOOT}),
        ("GPU 00000000:17:00.0\n    Fan Speed                         : Unknown Error\n    ECC Errors\n",
         {"NVML_UNKNOWN_ERROR": Action.MONITOR}),
        ("Unable to determine the device handle for GPU0000:1C:00.0: Unknown Error\n", {"GPU_LOST": Action.REBOOT}),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n",
         {"DRIVER_NOT_LOADED": Action.DRAIN}),
        ("Failed to initialize NVML: Driver/library version mismatch\n", {"DRIVER_MISMATCH": Action.REBOOT}),
        ("No devices were found\n", {"NO_DEVICES": Action.REBOOT}),
        ("| NVIDIA-SMI 550.54 |\n|   0  NVIDIA A40     On  |   00000000:4F:00.0 Off |                    0 |\n", {}),
        ("| NVIDIA-SMI 550.54 |\n|   3  NVIDIA A40     On  |   00000000:4F:00.0 Off |                    2 |\n",
         {"DRAM_UE": Action.RESET_GPU}),
        ("|   3  A40 On | 00000000:4F:00.0 Off |  0 |\n| ERR!   ERR! ERR!  ERR! / ERR! |  0MiB / 1MiB |  ERR! |\n",
         {"NVML_UNKNOWN_ERROR": Action.RESET_GPU}),
        ("| NVIDIA-SMI 550.54 |\n|   3  ERR!           ERR!|   00000000:4F:00.0 Off |                 ERR! |\n",
         {"NVML_UNKNOWN_ERROR": Action.RESET_GPU}),
    ],
)  # fmt: skip
def test_nvidia_smi(text: str, expected: dict[str, Action]) -> None:
    assert codes(text) == expected


QUERY = "index, pci.bus_id, ecc.errors.uncorrected.volatile.dram, remapped_rows.failure, remapped_rows.pending\n"


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ("0, 00000000:17:00.0, 0, No, No\n1, 00000000:18:00.0, 0, 0, 0\n", {}),
        ("0, 00000000:17:00.0, 0, Yes, No\n", {"REMAP_FAILURE": Action.REPLACE}),
        ("0, 00000000:17:00.0, 2, No, Yes\n", {"DRAM_UE": Action.RESET_GPU, "REMAP_PENDING": Action.RESET_GPU}),
        ("0, 00000000:17:00.0, [GPU is lost], [N/A], [N/A]\n", {"GPU_LOST": Action.REBOOT}),
    ],
)
def test_queried_values_as_csv(rows: str, expected: dict[str, Action]) -> None:
    result = scan(QUERY + rows)
    assert {finding.alias: finding.action for finding in result.findings} == expected
    assert {finding.device for finding in result.findings} <= {"00000000:17:00.0"}


def test_an_xml_report_may_stand_in_other_text_and_is_read_up_to_its_break() -> None:
    gpu = '<nvidia_smi_log>\n<gpu id="00000000:31:00.0"><remapped_rows><remapped_row_failure>Yes</remapped_row_failure>'
    whole = f"$ nvidia-smi -q -x\n{gpu}</remapped_rows></gpu></nvidia_smi_log>\nNo devices were found\n"
    assert codes(whole) == {"REMAP_FAILURE": Action.REPLACE, "NO_DEVICES": Action.REBOOT}
    assert [f.lines for f in scan(whole).findings if f.alias == "REMAP_FAILURE"] == [(3,)]
    broken = scan(gpu)
    assert broken.action is Action.REPLACE
    assert "breaks off at line 2" in broken.notes[0]
    healthy = scan(gpu.replace("Yes", "No"))
    assert healthy.action is None, "half a report proves no health"


def test_an_xml_document_with_entities_is_refused() -> None:
    bomb = '<!DOCTYPE nvidia_smi_log [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>\n<nvidia_smi_log><gpu>&b;</gpu>'
    result = scan(bomb)
    assert result.action is None
    assert "entities" in (result.cannot_judge or "")


def test_inactive_links_are_a_fault_only_beside_active_ones_of_the_same_product() -> None:
    none = "NVML: Unable to retrieve NVLink information as all links are inactive\n"
    dead = "GPU 1: NVIDIA A100-SXM4-80GB (UUID: GPU-1)\n" + none
    assert codes(A100 + dead) == {"NVLINK_INACTIVE": Action.RESET_GPU}
    assert codes(dead) == {"NVLINK_INACTIVE": Action.NONE}
    assert codes("GPU 1: NVIDIA GH200 480GB (UUID: GPU-1)\n" + none) == {"NVLINK_INACTIVE": Action.NONE}
    assert codes(A100) == {}
    half = "GPU 1: NVIDIA A100-SXM4-80GB (UUID: GPU-1)\n         Link 0: 25 GB/s\n         Link 1: <inactive>\n"
    assert codes(half) == {"NVLINK_INACTIVE": Action.RESET_GPU}
    bridge = half.replace("A100-SXM4-80GB", "A100 80GB PCIe")
    assert codes(bridge) == {"NVLINK_INACTIVE": Action.NONE}


def test_link_error_counters() -> None:
    text = "GPU 0: NVIDIA H100 (UUID: GPU-0)\n\t Link 0: Replay Errors: {}\n\t Link 0: Recovery Errors: {}\n"
    assert codes(text.format(0, 0)) == {}
    assert codes(text.format(3, 0)) == {"NVLINK_REPLAY": Action.MONITOR}
    assert codes(text.format(0, 1)) == {"NVLINK_RECOVERY": Action.RESET_GPU}


@pytest.mark.parametrize("blank", [*range(0x7FFFFFFFFFFFFFF0, 0x7FFFFFFFFFFFFFF4), *range(0x7FFFFFF0, 0x7FFFFFF4)])
def test_a_blank_number_is_no_number(blank: int) -> None:
    assert number(str(blank)) is None
    assert codes(f'DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{{gpu="0"}} {blank}\n') == {}


@pytest.mark.parametrize("text", ["", "N/A", "NaN", "inf", "140737488355328.0", "1e400", "[N/A]", "0xffffffff"])
def test_what_is_no_reading_is_none(text: str) -> None:
    assert number(text) is None


@pytest.mark.parametrize(
    ("sample", "expected"),
    [
        ('DCGM_FI_DEV_XID_ERRORS{gpu="1"} 79', {"XID79": Action.REBOOT}),
        ('DCGM_FI_DEV_XID_ERRORS{gpu="1"} 0', {}),
        ('DCGM_EXP_XID_ERRORS_COUNT{gpu="1",xid="48"} 2', {"XID48": Action.RESET_GPU}),
        ('DCGM_FI_DEV_ROW_REMAP_FAILURE{gpu="1"} 1', {"REMAP_FAILURE": Action.REPLACE}),
        ('DCGM_FI_DEV_CLOCK_THROTTLE_REASONS{gpu="1"} 128', {"HW_POWER_BRAKE": Action.MONITOR}),
        ('DCGM_FI_DEV_CLOCKS_EVENT_REASONS{gpu="1"} 5', {}),
        ('DCGM_FI_DEV_POWER_VIOLATION{gpu="1"} 1', {}),
        ('DCGM_FI_DEV_GPU_RECOVERY_ACTION{gpu="1"} 4', {"RECOVERY_ACTION": Action.DRAIN}),
        ('nvidia_smi_gpu_recovery_action{uuid="u"} 2', {"RECOVERY_ACTION": Action.REBOOT}),
        ('nvidia_smi_remapped_rows_pending{uuid="u"} 1', {"REMAP_PENDING": Action.RESET_GPU}),
        ('gpu_ecc_uncorrect_umc{gpu_id="3"} 1', {"RAS_UE": Action.DRAIN}),
        ('gpu_ecc_correct_umc{gpu_id="3"} 12', {}),
        ('gpu_health{gpu_id="3"} 1', {}),
        ('gpu_health{gpu_id="3"} 0', {"AMD_HEALTH_ZERO": Action.MONITOR}),
        ('gpu_afid_errors{severity="fatal",gpu_id="0"} 99', {"AFID99": Action.DRAIN}),
        ('gpu_afid_errors{severity="corrected",gpu_id="0"} 24', {"AFID24": Action.NONE}),
        ('DCGM_FI_DEV_XID_ERRORS{gpu="1"} NaN', {}),
    ],
)
def test_exporters(sample: str, expected: dict[str, Action]) -> None:
    assert codes(f"# HELP x y\n{sample} 1700000000000\n") == expected


def test_counters_of_a_sleeping_gpu_are_no_fault() -> None:
    text = 'gpu_ecc_correct_umc{gpu_id="3"} 1.04856e+06\ngpu_ecc_uncorrect_umc{gpu_id="3"} 1.04856e+06\n'
    assert codes(text) == {"RAS_IMPLAUSIBLE": Action.NONE}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("GPU: 0\n    ECC_BLOCKS:\n        UMC:\n            UNCORRECTABLE_COUNT: 2\n", {"RAS_UE": Action.DRAIN}),
        ("GPU: 0\n    ECC:\n        TOTAL_UNCORRECTABLE_COUNT: 2\n", {"RAS_UE": Action.DRAIN}),
        ("GPU: 0\n    THROTTLE:\n        HBM_THERMAL_VIOLATION_STATUS: ACTIVE\n", {"AMD_THERMAL": Action.MONITOR}),
        ("GPU: 0\n    THROTTLE:\n        PPT_VIOLATION_STATUS: ACTIVE\n", {"AMD_POWER_LIMIT": Action.NONE}),
        ("GPU: 0\n    RETIRED: No bad pages found.\n    PENDING: No bad pages found.\n", {}),
        ('[{"gpu": 0, "ecc_blocks": {"GFX": {"uncorrectable_count": 1}}}]', {"RAS_UE": Action.DRAIN}),
        ('[{"gpu": 0, "power": {"socket_power": {"value": 173, "unit": "W"}}}]', {}),
        ('{"gpu_data": [{"gpu": 0, "ecc": {"total_uncorrectable_count": "N/A"}}]}', {}),
        ("ERROR:root:Driver not initialized (amdgpu not found in modules)\n", {"AMDGPU_NOT_LOADED": Action.DRAIN}),
        ("WARNING: AMD GPU device(s) is/are in a low-power state. ROCm System Management\n", {}),
        ("2025/05/21 21:55:20  0       fatal           fatal-1.cper   25,30\nlist of afids\n",
         {"AFID25": Action.DRAIN, "AFID30": Action.DRAIN}),
    ],
)  # fmt: skip
def test_amd_tools(text: str, expected: dict[str, Action]) -> None:
    assert codes(text) == expected


def diag(status: str, name: str = "Memory", **warning: object) -> str:
    warnings = str([warning]).replace("'", '"') if warning else "[]"
    result = f'{{"gpu_ids": "2", "status": "{status}", "warnings": {warnings}}}'
    test = f'{{"name": "{name}", "results": [{result}]}}'
    return f'{{"DCGM GPU Diagnostic": {{"test_categories": [{{"tests": [{test}]}}]}}}}'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (diag("Pass"), {}),
        (diag("Skip"), {"DIAG_SKIPPED": Action.MONITOR}),
        (diag("Fail"), {"DCGM_TEST_FAILED": Action.DRAIN}),
        (diag("Fail", "CUDA Main Library"), {"DCGM_ENV": Action.NONE}),
        (diag("Fail", error_id=80, warning="x"), {"DCGM_80_ROW_REMAP_FAILURE": Action.REPLACE}),
        (diag("Fail", warning="Found 3 faulty memory elements on GPU 2"), {"DCGM_52_FAULTY_MEMORY": Action.DRAIN}),
        (diag("Fail", warning="Detected XID 79 for GPU 2", error_id=101), {"XID79": Action.REBOOT}),
        (diag("Fail", warning="something new", error_id=900, error_severity=5), {"DCGM_900": Action.NONE}),
        (diag("Fail", warning="something new", error_id=900, error_severity=2), {"DCGM_900": Action.DRAIN}),
    ],
)
def test_dcgm_json(text: str, expected: dict[str, Action]) -> None:
    assert codes(text) == expected


def test_a_dcgm_table_cuts_words_at_the_edge_of_a_cell() -> None:
    table = (
        "| Persistence Mode          | Pass - All                                     |\n"
        "| GPU Memory                | Fail - GPU: 0                                  |\n"
        "| Warning                   | GPU 0 had uncorrectable memory errors and row  |\n"
        "|                           |  remapping failed.                             |\n"
    )
    assert codes(table) == {"DCGM_80_ROW_REMAP_FAILURE": Action.REPLACE}
    assert codes(table.splitlines(keepends=True)[0] + "| PCIe | Skip - All |\n") == {}


def test_every_error_of_dcgm_is_in_the_catalogue_and_differs_only_with_a_reason() -> None:
    meant = {
        "unknown": Action.MONITOR,
        "monitor": Action.MONITOR,
        "triage": Action.MONITOR,
        "isolate": Action.DRAIN,
        "config": Action.NONE,
        "reset": Action.RESET_GPU,
    }
    for name in NAMES[1:]:
        code = code_of_name(f"DCGM_FR_{name}")
        assert code is not None
        entry = catalogue().entry(code)
        assert entry.known
        assert entry.vendor is not None
        assert (entry.action is meant[entry.vendor]) == (entry.differs is None), entry
    assert code_of_name("DCGM_FR_OK") is None
    assert code_of_name("DCGM_FR_CLOCK_THROTTLE_POWER") == "nvidia.dcgm.12"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"states": [{"health": "Healthy", "name": "error_xid", "reason": "XID 79 detected on PCI:0000:e4:00"}]}', {}),
        ('{"states": [{"health": "Unhealthy", "name": "fan", "reason": "slow"}]}', {"AGENT_UNHEALTHY": Action.MONITOR}),
        ('{"checkName": "GpuXidError", "isHealthy": true, "errorCode": ["79"]}', {}),
        ('{"checkName": "GpuMemWatch", "isHealthy": false, "errorCode": ["DCGM_FR_ROW_REMAP_FAILURE"]}',
         {"DCGM_80_ROW_REMAP_FAILURE": Action.REPLACE}),
        ('{"checkName": "SysLogsSXIDError", "isFatal": true, "errorCode": ["20034"]}',
         {"SXID20034": Action.RESET_GPU}),
        ("I0810 health.go] XidCriticalError: Xid=79, All devices will go unhealthy.\n", {"XID79": Action.REBOOT}),
        ("I0810 server.go] 'nvidia.com/gpu' device marked unhealthy: GPU-00000000-0000\n",
         {"AGENT_UNHEALTHY": Action.MONITOR}),
        ("detected NVSwitch fatal error 20034 on fid 0 on NVSwitch pci bus id 00000000:11:00.0 physical id 3 port 61\n",
         {"SXID20034": Action.RESET_GPU}),
        ("Tested 2 GPUs:\n\tGPU 0: OK\n\tGPU 1: FAULTY\n", {"BURNIN_FAULTY": Action.QUARANTINE}),
        ("Tested 2 GPUs:\n\tGPU 0: FAULTY\n\tGPU 1: FAULTY\n", {"BURNIN_FAULTY": Action.MONITOR}),
    ],
)  # fmt: skip
def test_other_agents(text: str, expected: dict[str, Action]) -> None:
    assert codes(text) == expected


def test_an_unknown_error_of_the_fabric_manager_is_listed() -> None:
    result = scan("[Feb 27 2025 15:10:02] [ERROR] [tid 1] something nobody knows\n")
    assert result.action is Action.NONE
    assert [item.line for item in result.unrecognised] == [1]


def test_what_the_user_names_and_is_not_there_cannot_be_judged() -> None:
    for name in ("nvidia-smi", "amd-smi", "dcgm", "prometheus", "agent"):
        result = scan("hello\n", name)
        assert result.action is None
        assert name in (result.cannot_judge or "")


def test_a_log_is_no_document_and_lines_of_one_inside_a_document_are_left_for_the_log_scanner() -> None:
    xid = "[   12.000000] NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus."
    assert read(xid + "\n") is None
    document = read(f"{smi('Remapped Rows', Pending='Yes')}{xid}\n")
    assert document is not None
    assert document.rest.split("\n")[3] == xid
    assert [o.code for o in document.observations] == ["nvidia.remap.pending"]


@pytest.mark.parametrize(
    "text",
    [
        "GPU  XCP  POWER  GPU_T  MEM_T  GFX_CLK\n  0    0  137 W  37 °C  31 °C  132 MHz\n",
        "+----------------+\n| AMD-SMI 26.0.0 |\n|----------------|\n| 0000:05:00.0 AMD Instinct MI300X | N/A |\n",
        "        GPU0    GPU1\nGPU0     X      NV18\nGPU1    NV18     X\n  SYS  = Connection traversing PCIe\n",
    ],
)
def test_an_inventory_has_no_fault_and_is_judged(text: str) -> None:
    result = scan(text)
    assert result.action is Action.NONE
    assert not result.findings


@pytest.mark.parametrize(
    "text",
    [
        "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-00000000-0000)\n",
        "GPU 00000000:17:00.0\n    Temperature\n        GPU Current Temp                  : 33 C\n",
        '<nvidia_smi_log>\n<gpu id="00000000:17:00.0">\n<product_name>H100</product_name>\n</gpu>\n</nvidia_smi_log>\n',
    ],
)
def test_nvidia_smi_without_a_value_about_health_cannot_be_judged(text: str) -> None:
    result = scan(text)
    assert result.action is None
    assert "nvidia-smi -q" in (result.cannot_judge or "")
