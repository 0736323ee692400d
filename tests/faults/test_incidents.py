"""Roots and victims, the driver's word, resets: one log at a time."""

from pathlib import Path

import pytest

from fleetd.config.faults import load_catalogue
from fleetd.core.faults.catalogue import Catalogue
from fleetd.core.faults.incidents import MAX_FAULTS, Incidents
from fleetd.core.faults.observation import MAX_LINES, Finding, Observation, ScanResult, device_key
from fleetd.core.faults.scan import LogScan, judge

HOST_WORDS = [
    f"[100.2] NVRM: Xid (PCI:0000:{bus}:00): 154, "
    "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"
    for bus in ("3b", "5e", "86", "af")
]


def scan(catalogue: Catalogue, *lines: str) -> ScanResult:
    log = LogScan(catalogue)
    log.feed("\n".join(lines).encode())
    return log.finish()


def roles(result: ScanResult) -> dict[tuple[str, str | None], str]:
    return {(f.alias, f.device): f.role for f in result.findings}


def one(result: ScanResult, alias: str) -> Finding:
    (finding,) = (f for f in result.findings if f.alias == alias)
    return finding


def test_a_host_wide_action_blames_only_the_gpu_with_the_fault(catalogue: Catalogue) -> None:
    result = scan(catalogue, "[100.1] NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.", *HOST_WORDS)
    assert result.action is not None
    assert result.action.value == "reboot"
    roots = [(f.alias, f.device) for f in result.findings if f.role == "root"]
    assert roots == [("XID79", "0000:3b:00")]
    assert all(f.scope.value == "host" for f in result.findings if f.alias == "XID154")


def test_a_host_wide_action_alone_is_one_word_about_no_gpu(catalogue: Catalogue) -> None:
    result = scan(catalogue, *HOST_WORDS)
    (finding,) = result.findings
    assert (finding.device, finding.scope.value, finding.role, finding.count) == (None, "host", "root", 4)
    assert finding.action.value == "reboot"


@pytest.mark.parametrize(
    ("words", "action"),
    [
        ("0x1 (GPU Reset Required)", "reset_gpu"),
        ("0x2 (Node Reboot Required)", "reboot"),
        ("0x2 (OS Reboot)", "reboot"),
        ("0x3 (Drain P2P)", "drain"),
        ("0x4 (Drain and Reset)", "drain"),
        ("0x4 (Drain and Re", "drain"),
        ("0x4", "drain"),
        ("0x5 (Recover IMEX Domain)", "drain"),
        ("0x6 (PF FLR)", "reset_gpu"),
        ("0x9 (Something New)", "drain"),
        ("0x0 (None)", "none"),
    ],
)
def test_every_recovery_action_is_obeyed(catalogue: Catalogue, words: str, action: str) -> None:
    line = f"NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to {words}"
    result = scan(catalogue, line)
    assert result.action is not None
    assert result.action.value == action


def test_the_driver_beats_the_table_and_its_last_word_counts(catalogue: Catalogue) -> None:
    fault = (
        "[1.0] NVRM: Xid (PCI:0000:3b:00): 119, pid=1, name=a, Timeout after 6s of waiting for RPC response from GPU0"
    )
    asked = (
        "[2.0] NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)"
    )
    done = "[9.0] NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x4 (Drain and Reset) to 0x0 (None)"
    assert one(scan(catalogue, fault), "XID119").action.value == "reset_gpu"
    assert one(scan(catalogue, fault, asked), "XID119").action.value == "drain"
    cured = one(scan(catalogue, fault, asked, done), "XID119")
    assert cured.action.value == "monitor"
    assert "prove it" in cured.why


def test_a_replacement_criterion_stands_whatever_the_driver_needs(catalogue: Catalogue) -> None:
    result = scan(
        catalogue,
        "NVRM: Xid (PCI:0000:3b:00): 64, Row Remapper Error: (0x1) - All reserved rows for bank are remapped",
        "NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
    )
    assert one(result, "XID64").action.value == "replace"
    assert one(result, "XID64").contact_vendor


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("94, pid=1, Contained: CE User Channel (0x9). RST: No, D-RST: No", "restart_app"),
        ("94, pid=1, Contained: CE User Channel (0x9). RST: Yes, D-RST: No", "reset_gpu"),
        ("94, pid=1, Contained: CE User Channel (0x9). RST: No, D-RST: Yes", "drain"),
        ("95, pid=1, Uncontained: FBHUB (0x1). RST: Yes, D-RST: No", "reset_gpu"),
        ("95, pid=1, Uncontained: FBHUB (0x1)", "reset_gpu"),
        ("64, Row Remapper Error: (0x1) - Row Remapping table is full", "replace"),
        ("64, Row Remapper Error: (0x1) - Internal inforom error", "reset_gpu"),
        ("64, Row Remapper: (0x1) - Attempting to remap a row that is already pending remapping.", "monitor"),
        ("64, Dynamic Page Retirement: Page is already pending retirement, reboot to activate (0x1).", "monitor"),
        ("64, a text that no driver prints", "monitor"),
        ("74, NVLink: fatal error detected on link 2(0x0, 0x0, 0x0, 0x40000, 0x0, 0x0, 0x0)", "reset_gpu"),
        ("74, NVLink: fatal error detected on link 2(0x1, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)", "none"),
        ("74, NVLink: fatal error detected on link 2(0x30, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)", "monitor"),
        ("74, NVLink: fatal error detected on link 2(0x200, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)", "drain"),
        ("74, NVLink: fatal error detected on link 2(0x200", "drain"),
    ],
)
def test_the_details_of_a_line_beat_the_table(catalogue: Catalogue, text: str, action: str) -> None:
    result = scan(catalogue, f"NVRM: Xid (PCI:0000:3b:00): {text}")
    assert result.action is not None
    assert result.action.value == action


@pytest.mark.parametrize(
    ("line", "alias", "action"),
    [
        (
            "NVRM: nvGpuOpsReportFatalError: uvm encountered global fatal error 0x60, requiring os reboot",
            "UVM_FATAL",
            "reboot",
        ),
        (
            "NVRM: krcWatchdog_IMPL: RC watchdog: GPU is probably locked!  Notify Timeout Seconds: 7",
            "GPU_LOCKED",
            "reset_gpu",
        ),
        (
            "nvidia 0000:3b:00.0: Unable to change power state from D3cold to D0, device inaccessible",
            "PCIE_DEVICE_INACCESSIBLE",
            "reboot",
        ),
        ("mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 7: 8c00004000010092", "MCE_CE", "none"),
        ("mce: [Hardware Error]: CPU 3: Machine Check Exception: 5 Bank 7: be00000000800400", "MCE_UE", "drain"),
        ("INFO: task nvidia-smi:12345 blocked for more than 120 seconds.", "HUNG_TASK", "monitor"),
        ("watchdog: BUG: soft lockup - CPU#12 stuck for 26s! [python3:4242]", "SOFT_LOCKUP", "monitor"),
        ("Kernel panic - not syncing: Fatal hardware error!", "MCE_UE", "drain"),
        ("EDAC MC0: 1 UE memory read error on CPU_SrcID#0_Ha#0_Chan#1_DIMM#0", "EDAC_UE", "drain"),
        (
            "traps: python3[7] general protection fault ip:7f12 sp:7ffe error:0 in libnccl.so.2.21[7f10+100]",
            "SEGV_LIBNCCL",
            "monitor",
        ),
        (
            "traps: python3[7] general protection ip:7f12 sp:7ffe error:0 in librccl.so.1.0[7f10+100]",
            "SEGV_LIBRCCL",
            "monitor",
        ),
        (
            "NVRM: GPU 0000:3b:00.0: GPU does not have the necessary power cables connected.",
            "NVRM_POWER_CABLE",
            "drain",
        ),
        ("vmiop_log: (0x0): XID 31 detected on physical_chid:0x18, guest_chid:0x11", "XID31", "restart_app"),
    ],
)
def test_host_and_driver_lines_without_a_code(catalogue: Catalogue, line: str, alias: str, action: str) -> None:
    result = scan(catalogue, f"[ 10.5] {line}")
    assert [f.alias for f in result.findings] == [alias]
    assert result.action is not None
    assert result.action.value == action


def test_a_follow_on_long_after_is_no_follow_on(catalogue: Catalogue) -> None:
    cause = "[1000.0] NVRM: Xid (PCI:0000:3b:00): 13, pid=1, name=a, Graphics Exception"
    near = "[1300.0] NVRM: Xid (PCI:0000:3b:00): 45, pid=1, name=a, Ch 1"
    late = "[9000.0] NVRM: Xid (PCI:0000:3b:00): 45, pid=9, name=b, Ch 1"
    other = "[1000.5] NVRM: Xid (PCI:0000:5e:00): 45, pid=1, name=a, Ch 1"
    assert roles(scan(catalogue, cause, near))["XID45", "0000:3b:00"] == "victim"
    assert roles(scan(catalogue, cause, late))["XID45", "0000:3b:00"] == "root"
    assert roles(scan(catalogue, cause, other))["XID45", "0000:5e:00"] == "root"


def test_of_two_follow_ons_at_one_time_the_first_is_the_root(catalogue: Catalogue) -> None:
    lines = [f"[1000.0] NVRM: Xid (PCI:0000:3b:00): {n}, pid=1, name=a, Ch 1" for n in (45, 43)]
    assert roles(scan(catalogue, *lines)) == {("XID45", "0000:3b:00"): "root", ("XID43", "0000:3b:00"): "victim"}


def test_a_clock_that_jumps_leaves_the_order_of_lines(catalogue: Catalogue) -> None:
    result = scan(
        catalogue,
        "[5000.0] NVRM: Xid (PCI:0000:3b:00): 48, pid=1, DBE (double bit error)",
        "2026-08-10T15:36:05+02:00 node-a kernel: NVRM: Xid (PCI:0000:3b:00): 63, Row Remapper: New row marked",
    )
    assert roles(result)["XID63", "0000:3b:00"] == "victim"
    assert result.action is not None
    assert result.action.value == "drain"


def test_the_same_fact_in_other_words_is_one_finding(catalogue: Catalogue) -> None:
    result = scan(
        catalogue,
        "NVRM: Xid (PCI:0000:28:00): 79, GPU has fallen off the bus.",
        "NVRM: GPU 0000:28:00.0: GPU has fallen off the bus.",
    )
    (finding,) = result.findings
    assert (finding.alias, finding.count, finding.lines) == ("XID79", 2, (1, 2))


def test_a_reset_that_ends_well_leaves_a_proof_to_do(catalogue: Catalogue) -> None:
    result = scan(
        catalogue,
        "[1.0] [drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring sdma0 timeout, signaled seq=123, emitted seq=125",
        "[1.1] amdgpu 0000:c1:00.0: amdgpu: GPU reset begin!",
        "[3.0] amdgpu 0000:c1:00.0: amdgpu: GPU reset(1) succeeded!",
    )
    assert one(result, "RING_TIMEOUT").device == "0000:c1:00.0"
    assert result.action is not None
    assert result.action.value == "monitor"


def test_success_followed_by_a_failed_resume_is_a_failure(catalogue: Catalogue) -> None:
    result = scan(
        catalogue,
        "[1.0] amdgpu 0000:c1:00.0: amdgpu: 1 uncorrectable hardware errors detected in umc block",
        "[1.1] amdgpu 0000:c1:00.0: amdgpu: GPU reset begin!",
        "[3.0] amdgpu 0000:c1:00.0: amdgpu: GPU reset succeeded, trying to resume",
        "[3.5] [drm:amdgpu_device_ip_late_init [amdgpu]] *ERROR* late_init of IP block <gfx_v9_4_3> failed -110",
    )
    assert result.action is not None
    assert result.action.value == "reboot"


def test_what_a_program_wrote_is_never_acted_on(catalogue: Catalogue) -> None:
    for prefix in ("12,1,2,-;", "<12>[ 1.0] ", "user  :notice: [ 1.0] ", "Aug 10 15:36:05 node-a root: "):
        result = scan(catalogue, prefix + "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.")
        (finding,) = result.findings
        assert (finding.alias, finding.action.value, finding.contact_vendor) == ("XID79", "none", False)
    real = scan(
        catalogue,
        "12,1,2,-;NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
        "4,2,3,-;NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
    )
    assert one(real, "XID79").action.value == "reboot"


def test_a_site_has_the_last_word(tmp_path: Path) -> None:
    (tmp_path / "ours.yaml").write_text(
        'apiVersion: fleetd/v1\nkind: FaultCatalogue\nsource: our site\nversion: "1"\noverrides:\n'
        '  - {code: nvidia.xid.74, action: monitor, reason: "bridges are being replaced"}\n',
        encoding="utf-8",
    )
    line = (
        "NVRM: Xid (PCI:0000:16:00): 74, NVLink: fatal error detected on link 5(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)"
    )
    finding = one(scan(load_catalogue(tmp_path), line), "XID74")
    assert finding.action.value == "monitor"


def test_pcie_errors_blame_a_gpu_only_when_they_name_one(catalogue: Catalogue) -> None:
    text = "PCIe Bus Error: severity=Uncorrectable (Fatal), type=Transaction Layer, (Receiver ID)"
    assert one(scan(catalogue, f"pcieport 0000:3a:00.0: {text}"), "AER_UNCOR_FATAL").action.value == "monitor"
    assert one(scan(catalogue, f"nvidia 0000:3b:00.0: {text}"), "AER_UNCOR_FATAL").action.value == "reboot"


def test_memory_is_bounded(catalogue: Catalogue) -> None:
    incidents = Incidents(catalogue)
    for n in range(MAX_FAULTS + 5):
        incidents.add(Observation(code="nvidia.xid.13", device=f"gpu {n}", line=n))
    for n in range(100):
        incidents.add(Observation(code="nvidia.xid.13", device="gpu 0", line=n))
    assert len(incidents) == MAX_FAULTS
    assert incidents.notes
    assert max(len(f.lines) for f in incidents.findings()) == MAX_LINES


def test_documents_are_judged_by_the_same_rules(catalogue: Catalogue) -> None:
    seen = [Observation(code="nvidia.xid.48", device="GPU 0"), Observation(code="nvidia.xid.63", device="GPU 0")]
    result = judge(catalogue, seen, format="agent")
    assert (result.format, result.action.value if result.action else None) == ("agent", "drain")
    assert judge(catalogue, [], format="agent", cannot_judge="it breaks off").action is None


@pytest.mark.parametrize("text", ["0000:3b:00.0", "00000000:3B:00.0", "PCI:0000:3b:00", "3b:00.0", "3B:00"])
def test_one_device_in_all_its_spellings(text: str) -> None:
    assert device_key(text) == "0:3b:00"
