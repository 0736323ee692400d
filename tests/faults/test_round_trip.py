"""A line in each driver format of each era gives the entry of its code, for the whole XID, SXid and AMD tables."""

import csv
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetd.core.faults.catalogue import Catalogue
from fleetd.core.faults.lines import LineReader
from fleetd.core.faults.observation import ScanResult
from fleetd.core.faults.prefix import split
from fleetd.core.faults.scan import LogScan
from fleetd.core.faults.sieve import candidates

FACTS = Path(__file__).parent / "facts"


def table(name: str) -> list[dict[str, str]]:
    with (FACTS / name).open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


XIDS = [int(row["xid"]) for row in table("xid.csv")]
SXIDS = [row["sxid"] for row in table("sxid.csv")]
BLOCKS = sorted(
    {row["id"].rpartition("_")[0].lower() for row in table("amd.csv") if row["kind"] == "ras_block"} - {"*"}
)

PREFIXES = (
    "",
    "[  188281.220101] ",
    "[Mon Apr  6 03:21:37 2026] ",
    "kern  :warn  : 2025-01-21T04:41:44,283302+00:00 ",
    "kern  :err   : [  188281.220101] ",
    "Aug 10 15:36:05 node-a kernel: ",
    "Aug 12 17:27:59 node-a kernel: [    6.600865] ",
    "2026-08-10T15:36:05.123456+02:00 node-a kernel: ",
    "févr. 27 12:00:00 node-a kernel: ",
    "kernel: ",
    "<4>[  145461.830320] ",
    "4,22726,652513349062,-;",
    "> [  113.674376] ",
    "16:32:32 ",
)

XID_ERAS = (
    "NVRM: Xid (PCI:0000:3b:00): {n}, pid=1234, name=python3, Ch 00000008",
    "NVRM: Xid (PCI:0000:3b:00): {n}, pid='<unknown>', name=<unknown>, channel 0x00000008",
    "NVRM: Xid (PCI:0000:3b:00): {n}, pid=<unknown>, name=<unknown>, Ch 00000008",
    "NVRM: Xid (PCI:0000:3b:00): {n}, pid=1234,   name=train.3, channel 0x00000008",
    "NVRM: Xid (PCI:0000:3b:00): {n}, pid=1234, Ch 00000008",
    "NVRM: Xid (PCI:0000:3b:00.0): {n}, Ch 00000008",
    "NVRM: Xid (PCI:0000:3b:00 GPU-I:05): {n}, pid=1234, Ch 00000008",
    "NVRM: Xid (0000:3b:00): {n}, Channel 00000008",
    "nvrm:  xid ( pci:0000:3b:00 ) : {n}, channel 0x8",
    "NVRM: XID(PCI:0000:3b:00):{n},Ch 8",
)


def scan(catalogue: Catalogue, text: str) -> ScanResult:
    log = LogScan(catalogue)
    log.feed(text.encode())
    return log.finish()


@pytest.mark.parametrize("era", XID_ERAS)
def test_every_xid_in_every_era(catalogue: Catalogue, era: str) -> None:
    for n in XIDS:
        (finding,) = scan(catalogue, era.format(n=n)).findings
        entry = catalogue.entry(f"nvidia.xid.{n}")
        assert (finding.code, finding.alias, finding.action) == (entry.code, f"XID{n}", entry.action)
        assert finding.device is not None
        assert finding.device.startswith("0000:3b:00")


@pytest.mark.parametrize("prefix", PREFIXES)
def test_every_kind_of_log_line_carries_a_fault(catalogue: Catalogue, prefix: str) -> None:
    for line, alias in (
        ("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.", "XID79"),
        ("nvidia-nvswitch0: SXid (PCI:0000:97:00.0): 20034, Fatal, Link 30 LTSSM Fault Up", "SXID20034"),
        ("amdgpu 0000:6f:00.0: amdgpu: Saved bad pages 176 reaches threshold value 128", "BAD_PAGE_THRESHOLD"),
        ("pcieport 0000:7a:02.0: DPC: containment event, status:0x1f07 source:0x0000", "DPC_CONTAINMENT"),
        ("Out of memory: Killed process 123, UID 48, (httpd)", "OOM"),
    ):
        result = scan(catalogue, prefix + line)
        assert [finding.alias for finding in result.findings] == [alias]
        assert (result.findings[0].at is not None) == (prefix not in ("", "kernel: "))


@pytest.mark.parametrize("sxid", SXIDS)
def test_every_sxid_with_each_word(catalogue: Catalogue, sxid: str) -> None:
    base = f"[1.5] nvidia-nvswitch2: SXid (PCI:0000:1d:00.0): {sxid}, "
    fatal, harmless, plain = (
        scan(catalogue, base + tail).findings[0]
        for tail in ("Fatal, Link 30 text", "Non-fatal, Link 30 text (First)", "Link 30 text")
    )
    assert {fatal.alias, harmless.alias, plain.alias} == {f"SXID{sxid}"}
    assert (fatal.action.value, harmless.action.value) == ("reset_gpu", "none")
    assert plain.action is catalogue.entry(f"nvidia.sxid.{sxid}").action


NVLINK5 = table("nvlink5.csv")


def word(mask: str) -> str:
    return f"0x{int(mask.replace('-', '0'), 2):08x}"


def nvlink5_lines() -> Iterator[tuple[dict[str, str], str]]:
    """One line for each row, register layout and spelling of its unit."""
    for row in NVLINK5:
        status = (row["error_status"] or "0x00000000").split("/")[0]
        severity = "Nonfatal" if row["severity"].startswith("Non") else "Fatal"
        for layout in ("intrinfo_mask_v1_driver_lt_575", "intrinfo_mask_v2_driver_ge_575"):
            for unit in {row["subcode"], row["subcode"].split("/")[0]}:
                words = f"({word(row[layout])} {status} 0x00000000 0x00000000 0x00000000 0x00000000)"
                text = f"{unit} {severity} XC0 i0 Link 07 {words}"
                yield row, f"NVRM: Xid (PCI:0000:3b:00): {row['xid']}, {text}"


def test_every_row_of_the_nvlink5_decode_in_both_layouts(catalogue: Catalogue) -> None:
    for row, line in nvlink5_lines():
        (finding,) = scan(catalogue, line).findings
        assert finding.alias == f"XID{row['xid']}"
        if "Fatal" in line:
            assert finding.action.value == "reset_gpu", line
        elif row["immediate_action"] == "XID_154_EVAL":
            assert finding.action.value == "restart_app", line
        else:
            both_ignored = row["investigatory_action"] == "IGNORE"
            assert finding.action.value == ("none" if both_ignored else "monitor"), line
        assert row["immediate_action"] in finding.why, line
        bare = line.replace(" Nonfatal ", " ").replace(" Fatal ", " ")
        (unsaid,) = scan(catalogue, bare).findings
        assert unsaid.action is finding.action, bare
        assert unsaid.severity is finding.severity, bare


AMD = "amdgpu 0000:6f:00.0: amdgpu: "
HARDWARE = "amdgpu 0000:6f:00.0: {7}[Hardware Error]: "
DRM = "[drm:amdgpu_job_timedout [amdgpu]] *ERROR* "
AMD_LINES = (
    ("gpu_reset_begin", AMD + "GPU reset begin!", "amd.reset.begin"),
    ("gpu_reset_begin", AMD + "GPU reset begin!. Source:  3", "amd.reset.begin"),
    ("gpu_reset_succeeded", AMD + "GPU reset(4) succeeded!", "amd.reset.ok"),
    ("gpu_reset_succeeded", AMD + "GPU reset succeeded, trying to resume", "amd.reset.ok"),
    ("gpu_reset_failed", AMD + "GPU reset(2) failed", "amd.reset.failed"),
    ("gpu_reset_end", AMD + "GPU reset end with ret = -110", "amd.reset.failed"),
    ("gpu_reset_end", AMD + "GPU reset end with ret = 0", "amd.reset.ok"),
    ("gpu_recovery_failed", AMD + "GPU Recovery Failed: -19", "amd.reset.failed"),
    ("mode_reset_failed", AMD + "Mode1 reset failed!", "amd.reset.failed"),
    ("mode_reset_failed", AMD + "Mode 2 reset failed", "amd.reset.failed"),
    ("vram_lost", "[drm] VRAM is lost due to GPU reset!", "amd.reset.vram_lost"),
    ("ring_timeout", DRM + "ring sdma0 timeout, signaled seq=123, emitted seq=125", "amd.ring.timeout"),
    ("ring_timeout", AMD + "ring gfx_0.0.0 timeout, signaled seq=123, emitted seq=125", "amd.ring.timeout"),
    ("ring_timeout", AMD + "ring comp_1.0.0 timeout, but soft recovered", "amd.ring.recovered"),
    ("ring_reset_failed", AMD + "Ring gfx_0.0.0 reset failed", "amd.ring.reset_failed"),
    ("process_info", AMD + "Process python3 pid 71244 thread worker pid 71288", None),
    ("device_lost", AMD + "device lost from bus!", "amd.bus.lost"),
    ("smu_all_ones", AMD + "SMU: response:0xFFFFFFFF for index:18 param:0x00000000", "amd.bus.lost"),
    ("smu_send_failed", AMD + "Failed to send message 0x4e, response 0x0", "amd.smu.timeout"),
    ("smu_send_failed", AMD + "SMU: I'm not done with your previous command: SMN_C2PMSG_66:0x6", "amd.smu.timeout"),
    ("mes_no_response", AMD + "MES failed to respond to msg=REMOVE_QUEUE", "amd.mes.no_response"),
    ("mes_no_response", AMD + "MES(1) failed to respond to msg=MISC (WAIT_REG_MEM)", "amd.mes.no_response"),
    ("mes_unrecoverable", AMD + "MES might be in unrecoverable state, issue a GPU reset", "amd.mes.timeout"),
    ("hws_hang", AMD + "qcm fence wait loop timeout expired", "amd.hws.hang"),
    (
        "hws_hang",
        AMD + "The cp might be in an unrecoverable state due to an unsuccessful queues preemption",
        "amd.hws.hang",
    ),
    ("evict_failed", AMD + "Failed to evict queue 1", "amd.evict.failed"),
    ("evict_failed", AMD + "failed to evict process queues", "amd.evict.failed"),
    ("page_fault", AMD + "[gfxhub0] no-retry page fault (src_id:0 ring:24 vmid:3 pasid:32773)", "amd.vm_fault"),
    ("page_fault", AMD + "[mmhub] page fault (src_id:0 ring:88 vmid:8 pasid:32787)", "amd.vm_fault"),
    ("illegal_opcode", AMD + "Illegal opcode in command stream", "amd.illegal.command"),
    ("illegal_register", AMD + "Illegal register access in command stream", "amd.illegal.command"),
    (
        "sq_interrupt",
        AMD + "sq_intr: error, se 0, data 0x41, sh 0, priv 1, wave_id 4, simd_id 0",
        "amd.illegal.command",
    ),
    ("sram_ecc", AMD + "sq_intr: error, detail 0x00000000, type 2, sram_ecc, sh 1", "amd.ras.sram_ecc"),
    (
        "athub_ue",
        "amdgpu 0000:6f:00.0: {1}uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!",
        "amd.athub.fatal",
    ),
    ("aca_logged", HARDWARE + "Accelerator Check Architecture events logged", "amd.aca.logged"),
    ("aca_status", HARDWARE + "aca entry[00].STATUS=0xbaa000000000080b", "amd.aca.uc_pcc"),
    ("aca_status", HARDWARE + "ACA[01/01].STATUS=0xd820000000060150", "amd.aca.ce"),
    ("aca_status", HARDWARE + "ACA[01/02].STATUS=0xb000000000060150", "amd.aca.uc"),
    ("aca_status", HARDWARE + "ACA[02/02].STATUS=0x9000100000060150", "amd.aca.deferred"),
    (
        "ras_ce_new",
        AMD + "socket: 4, die: 0, 3 new correctable hardware errors detected in gfx block",
        "amd.ras.gfx.ce",
    ),
    (
        "ras_ce_total",
        AMD + "41 correctable hardware errors detected in total in umc block, no user action is needed.",
        "amd.ras.umc.ce",
    ),
    (
        "ras_ue_new",
        AMD + "{9} socket: 2, die: 1, 1 new uncorrectable hardware errors detected in umc block",
        "amd.ras.umc.ue",
    ),
    ("ras_de", AMD + "{8} socket: 2, die: 1, 1 new deferred hardware errors detected in umc block", "amd.ras.umc.de"),
    ("poison_created", "amdgpu 0000:6f:00.0: {15}Poison is created", "amd.poison.created"),
    ("poison_consumed_reset", AMD + "poison is consumed by client 12, kick off gpu reset flow", "amd.poison.consumed"),
    ("poison_unmap_ok", "RAS poison consumption, unmap queue flow succeeds: client id 10", "amd.poison.contained"),
    (
        "poison_unmap_ok",
        AMD + "RAS poison consumption, unmap queue flow succeeded: client id 12",
        "amd.poison.contained",
    ),
    (
        "poison_fallback_reset",
        AMD + "RAS poison consumption, fall back to gpu reset flow: client id 12",
        "amd.poison.consumed",
    ),
    (
        "poison_fallback_reset",
        AMD + "RAS poison consumption, fallback to gpu reset flow: client id 12",
        "amd.poison.consumed",
    ),
    ("poison_block_reset", AMD + "GPU reset for gfx RAS poison consumption is issued!", "amd.poison.consumed"),
    ("bad_page_threshold", AMD + "Saved bad pages 176 reaches threshold value 64", "amd.bad_page.threshold"),
    ("bad_page_refuse", AMD + "RAS records:200 exceed threshold:128", "amd.bad_page.threshold"),
    ("bad_page_refuse", AMD + "RAS records: 200 exceeds threshold 128", "amd.bad_page.threshold"),
    (
        "service_action_guide",
        AMD + "Please consult AMD Service Action Guide (SAG) for appropriate action",
        "amd.bad_page.service",
    ),
    ("fatal_init", AMD + "Fatal error during GPU init", "amd.init.failed"),
    (
        "ip_init_failed",
        "[drm:amdgpu_device_init [amdgpu]] *ERROR* sw_init of IP block <gmc_v9_0> failed -2",
        "amd.init.failed",
    ),
    ("ip_suspend_failed", "[drm:x [amdgpu]] *ERROR* suspend of IP block <psp> failed -22", "amd.suspend.failed"),
    ("tmr_terminate", "[drm:psp_suspend [amdgpu]] *ERROR* Failed to terminate tmr", "amd.psp.tmr"),
    ("cf_state", "amdgpu 0000:6f:00.0: amdgpu: Failed to disallow cf state", "amd.smu.timeout"),
    ("throttled", AMD + "WARN: GPU is throttled, expect performance decrease. FIT THM", "amd.throttled"),
    ("xgmi_err", AMD + "XGMI: Failed to get xgmi topology", "amd.xgmi.error"),
    (
        "io_page_fault",
        "AMD-Vi: Event logged [IO_PAGE_FAULT device=5a:14.0 domain=0x0000 address=0x0]",
        "host.iommu.fault",
    ),
    ("aer_cor", "nvidia 0000:3b:00.0: aer_cor_status: 0x00001000, aer_cor_mask: 0x00002000", "pcie.aer.corrected"),
    ("aer_uncor", "nvidia 0000:3b:00.0: aer_uncor_status: 0x00000020, aer_uncor_mask: 0x0", "pcie.aer.nonfatal"),
    ("pcie_link_down", "pcieport 0000:00:1c.0: pciehp: Slot(12): Link Down", "pcie.hotplug.gone"),
    ("pcie_card_gone", "pcieport 0000:00:1c.0: pciehp: Slot(12-1): Card not present", "pcie.hotplug.gone"),
    ("dpc", "pcieport 0000:7a:02.0: DPC: containment event, status:0x1f07 source:0x0000", "pcie.dpc.containment"),
    ("edr", "pcieport 0000:7a:02.0: EDR: EDR event received", "pcie.dpc.containment"),
    (
        "ghes",
        "{1}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 1",
        "host.ghes.other.recoverable",
    ),
    (
        "error_address",
        AMD + "Error Address(PA):0x60d1a4480  Row:0x1834 Col:0x0  Bank:0x7 Channel:0x74",
        "amd.ras.umc.address",
    ),
    ("mce_ce", "[Hardware Error]: CPU:12 (19:1:0) MC60_STATUS[Over|CE|MiscV|-|-]: 0xaaa", "host.mce.corrected"),
    ("mce_ue", "[Hardware Error]: CPU:12 (19:1:0) MC21_STATUS[-|UE|MiscV|-|PCC]: 0xaaa", "host.mce.uncorrected"),
    ("mce_ue", "[Hardware Error]: CPU:1 (19:1:0) MC3_STATUS[Over|UC|MiscV|-|PCC]: 0xaaa", "host.mce.uncorrected"),
)


@pytest.mark.parametrize(("row", "line", "code"), AMD_LINES)
def test_every_amd_line(catalogue: Catalogue, row: str, line: str, code: str | None) -> None:
    assert row
    for prefix in PREFIXES:
        findings = scan(catalogue, prefix + line).findings
        assert [finding.code for finding in findings] == ([] if code is None else [code]), prefix
    if code is not None:
        assert candidates(line.lower().encode()), "the first sieve has no word of this line"


def test_the_list_above_covers_the_table() -> None:
    rows = {row["id"] for row in table("amd.csv") if row["kind"] == "kernel_log"}
    assert rows - {row for row, _, _ in AMD_LINES} == {"cper_sev"}  # a line of the firmware record, tested as a block


@pytest.mark.parametrize("severity", ["corrected", "recoverable", "fatal"])
def test_firmware_records_carry_their_severity_and_device(catalogue: Catalogue, severity: str) -> None:
    lines = (
        "Hardware error from APEI Generic Hardware Error Source: 1",
        f"event severity: {severity}",
        "  section_type: PCIe error",
        "  device_id: 0000:b6:01.0",
        "  vendor_id: 0x8086, device_id: 0x352a",
    )
    (finding,) = scan(catalogue, "\n".join(f"{{1}}[Hardware Error]: {line}" for line in lines)).findings
    assert (finding.code, finding.device) == (f"host.ghes.pcie.{severity}", "0000:b6:01.0")


@pytest.mark.parametrize("block", BLOCKS)
def test_every_ras_block(catalogue: Catalogue, block: str) -> None:
    reader = LineReader(catalogue)
    for kind, word_ in (("ce", "correctable"), ("ue", "uncorrectable"), ("de", "deferred")):
        line = f"amdgpu 0000:6f:00.0: {{3}}socket: 1, die: 0, 2 new {word_} hardware errors detected in {block} block"
        _, (observation,) = reader.read(split(line), 1)
        assert observation.code == f"amd.ras.{block}.{kind}"
        assert catalogue.entry(observation.code).known
