"""Kinds of lines that no input has: who wrote them, fragments, codes without their words, ports and their GPUs."""

import pytest

from fleetd.core.faults.catalogue import Catalogue
from fleetd.core.faults.observation import ScanResult
from fleetd.core.faults.scan import LogScan
from fleetd.core.policy import Action

FALLEN = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=python, GPU has fallen off the bus."


def scan(catalogue: Catalogue, *lines: str) -> ScanResult:
    log = LogScan(catalogue)
    log.feed("".join(f"{line}\n" for line in lines).encode())
    return log.finish()


@pytest.mark.parametrize(
    "prefix",
    [
        "bash[12]: ",
        "[   10.1] bash[12]: ",
        "[   10.1] host systemd[1]: echo ",
        "<4>[   10.1] python3[77]: ",
        "Aug 10 15:36:05 node-a myscript: ",
        "Aug 10 15:36:05 node-a (sd-exec)[31]: ",
        "Aug 10 15:36:05 node-a root: ",
        "2026-08-10T15:36:05.123+02:00 node-a slurmd[123]: error: ",
    ],
)
def test_what_a_program_quotes_is_told_and_never_acted_on(catalogue: Catalogue, prefix: str) -> None:
    result = scan(catalogue, prefix + FALLEN)
    assert [(f.alias, f.action) for f in result.findings] == [("XID79", Action.NONE)]
    assert "not by the kernel" in result.findings[0].why
    both = scan(catalogue, prefix + FALLEN, "[   11.0] " + FALLEN, prefix + FALLEN)
    assert both.action is Action.REBOOT


@pytest.mark.parametrize(
    "prefix",
    [
        "",
        "[   10.1] ",
        "[   10.1][ T1234] ",
        "Aug 10 15:36:05 node-a kernel: ",
        "Aug 10 15:36:05 node-a kernel: [  123.4] ",
        "Aug 10 15:36:05 node-a ",
        "kernel: ",
    ],
)
def test_what_the_kernel_wrote_is_acted_on(catalogue: Catalogue, prefix: str) -> None:
    assert scan(catalogue, prefix + FALLEN).action is Action.REBOOT


def test_a_record_of_the_journal_is_the_kernels_only_if_it_says_so(catalogue: Catalogue) -> None:
    record = '{"__CURSOR":"s=1","MESSAGE":"' + FALLEN + '"'
    assert scan(catalogue, record + ',"_TRANSPORT":"stdout","SYSLOG_IDENTIFIER":"train"}').action is Action.NONE
    assert scan(catalogue, record + ',"_TRANSPORT":"kernel","SYSLOG_IDENTIFIER":"kernel"}').action is Action.REBOOT
    assert scan(catalogue, record + ',"_TRANSPORT":"syslog","SYSLOG_FACILITY":"0"}').action is Action.REBOOT


def test_the_kernels_own_lines_about_a_process_and_a_daemons_report_stay(catalogue: Catalogue) -> None:
    crash = scan(catalogue, "[  1.1] python[1234]: segfault at 10 ip 00007f sp 0000 error 4 in libnccl.so.2[7f]")
    assert [f.alias for f in crash.findings] == ["SEGV_LIBNCCL"]
    guest = "Aug 10 15:36:05 n nvidia-vgpu-mgr[12]: error: vmiop_log: (0x0): Xid 79 detected on physical_chid:0x25"
    assert scan(catalogue, guest).action is Action.REBOOT


@pytest.mark.parametrize(
    ("line", "alias", "action"),
    [
        ("{1}[Hardware Error]: event severity: fatal", "GHES_FATAL", Action.DRAIN),
        ("{1}[Hardware Error]:  Error 0, type: fatal", "GHES_FATAL", Action.DRAIN),
        ("[Hardware Error]: event severity: corrected", "GHES_CORRECTED", Action.NONE),
        ("{2}[Hardware Error]:   section_type: PCIe error", "GHES_PCIE_RECOVERABLE", Action.MONITOR),
        ("mce: [Hardware Error]: Machine check events logged", "MCE_LOGGED", Action.MONITOR),
        ("[Hardware Error]: System Fatal error.", "MCE_UE", Action.DRAIN),
        ("[Hardware Error]: Deferred error, no action required.", "MCE_DE", Action.MONITOR),
        ("pcieport 0000:16:01.0: AER: Correctable error message received from 0000:18:00.0", "AER_COR",
         Action.MONITOR),
        ("Memory failure: 0x3a1b2c: Killing python:12 due to hardware memory corruption", "MEMORY_FAILURE",
         Action.DRAIN),
    ],
)  # fmt: skip
def test_a_fragment_of_a_record_is_not_lost(catalogue: Catalogue, line: str, alias: str, action: Action) -> None:
    result = scan(catalogue, "[    1.0] " + line)
    assert ([f.alias for f in result.findings], result.action) == ([alias], action)


def test_a_fragment_that_says_no_severity_cannot_be_judged(catalogue: Catalogue) -> None:
    result = scan(catalogue, "[    1.0] {1}[Hardware Error]:   error_type: 3, multi-bit ECC")
    assert (result.action, result.unrecognised_total) == (None, 1)


@pytest.mark.parametrize("tail", ["0x0 (None) to 0x9 (Blow Fuse)", "0x0 (None) to 0x77", "0x0 (None) to"])
def test_an_unknown_recovery_action_takes_the_gpu_out(catalogue: Catalogue, tail: str) -> None:
    line = f"[1.0] NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from {tail}"
    assert scan(catalogue, line).action is Action.DRAIN


def test_parity_on_a_link_asks_for_more_when_it_comes_a_third_time(catalogue: Catalogue) -> None:
    def line(second: int, link: int) -> str:
        registers = "0x10, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0"
        text = f"NVLink: fatal error detected on link {link}({registers})"
        return f"[{second}.0] NVRM: Xid (PCI:0000:3b:00): 74, pid=1, name=x, {text}"

    assert scan(catalogue, line(1, 2), line(2, 2), line(3, 5)).action is Action.MONITOR
    assert scan(catalogue, line(1, 2), line(2, 2), line(3, 2)).action is Action.DRAIN


def test_a_port_names_the_device_whose_error_it_received(catalogue: Catalogue) -> None:
    line = "[1.0] pcieport 0000:16:01.0: AER: Uncorrected (Fatal) error received: 0000:18:00.0"
    assert [f.device for f in scan(catalogue, line).findings] == ["0000:18:00.0"]


GONE = "[90.0] pcieport 0000:17:01.0: pciehp: Slot(1): Card not present"


@pytest.mark.parametrize(
    "lines",
    [
        ("[1.0] pci 0000:17:01.0: PCI bridge to [bus 18-1a]", "[2.0] nvidia 0000:18:00.0: enabling device (0 -> 2)",
         GONE),
        ("[1.0] pci 0000:17:01.0: PCI bridge to [bus 18]", "[2.0] amdgpu 0000:18:00.0: enabling device (0 -> 2)",
         "[90.0] pcieport 0000:17:01.0: DPC: containment event, status:0x1f01 source:0x0000"),
        ("[90.0] pcieport 0000:17:01.0: pciehp: Slot(GPU3): Card not present",),
    ],
)  # fmt: skip
def test_a_port_above_a_gpu_that_lost_it_is_drained(catalogue: Catalogue, lines: tuple[str, ...]) -> None:
    assert scan(catalogue, *lines).action is Action.DRAIN


def test_a_port_above_anything_else_is_watched(catalogue: Catalogue) -> None:
    elsewhere = "[1.0] pci 0000:17:01.0: PCI bridge to [bus 28]"
    assert scan(catalogue, elsewhere, "[2.0] nvidia 0000:18:00.0: enabling device", GONE).action is Action.MONITOR


def test_the_fault_of_the_gpu_below_says_what_to_do(catalogue: Catalogue) -> None:
    bridge = "[1.0] pci 0000:17:01.0: PCI bridge to [bus 18]"
    lost = "[90.1] NVRM: Xid (PCI:0000:18:00): 79, GPU has fallen off the bus."
    result = scan(catalogue, bridge, "[2.0] nvidia 0000:18:00.0: enabling device", GONE, lost)
    assert result.action is Action.REBOOT


def test_one_message_without_an_answer_is_watched_and_two_ask_for_a_reset(catalogue: Catalogue) -> None:
    amd = "amdgpu 0000:c1:00.0: amdgpu: "
    lines = [f"[{n}.0] {amd}MES failed to respond to msg=MISC (WAIT_REG_MEM)" for n in range(2)]
    assert scan(catalogue, lines[0]).action is Action.MONITOR
    assert scan(catalogue, *lines).action is Action.RESET_GPU
    assert scan(catalogue, f"[1.0] {amd}Failed to evict queue 1").action is Action.MONITOR


@pytest.mark.parametrize("text", ["-1", "xid -1", "--1", "0x4f"])
def test_a_number_that_is_no_code_is_not_found(catalogue: Catalogue, text: str) -> None:
    assert catalogue.find(text) is None


@pytest.mark.parametrize("text", ["RLW_REMAP", "rlw_remap", "mse degraded"])
def test_a_unit_of_a_link_is_explained_by_its_xid(catalogue: Catalogue, text: str) -> None:
    entry = catalogue.find(text)
    assert entry is not None
    assert entry.alias in {"XID145", "XID150"}
    assert "RESET_GPU" in entry.investigation


def test_a_cut_quote_of_a_program_does_not_stop_the_judgement(catalogue: Catalogue) -> None:
    quote = (
        "Mar  4 11:22:33 node-a sudo[44]: root : COMMAND=/usr/bin/grep NVRM: Xid (PCI:0000:3b:00): /var/log/messages"
    )
    result = scan(catalogue, "Mar  4 11:22:30 node-a kernel: usb 1-1: new device", quote)
    assert result.action is Action.NONE
    assert result.unrecognised_total == 1


def test_a_message_of_bytes_in_the_journal_is_read(catalogue: Catalogue) -> None:
    message = ",".join(str(byte) for byte in b"NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.")
    record = f'{{"__CURSOR":"s=1","_TRANSPORT":"kernel","MESSAGE":[{message}]}}'
    assert scan(catalogue, record).action is Action.REBOOT


@pytest.mark.parametrize(
    "message",
    [
        "ERROR: GPU over temperature range(SW CTF) detected!",
        "ERROR: GPU HW Critical Temperature Fault(aka CTF) detected!",
        "ERROR: System is going to shutdown due to GPU SW CTF!",
    ],
)
def test_a_gpu_past_its_critical_temperature_is_drained(catalogue: Catalogue, message: str) -> None:
    assert scan(catalogue, f"[1.0] amdgpu 0000:c1:00.0: amdgpu: {message}").action is Action.DRAIN


def test_a_scheduler_queue_that_cannot_be_preempted_is_a_hang(catalogue: Catalogue) -> None:
    line = "[1.0] amdgpu 0000:c1:00.0: amdgpu: HIQ MQD's queue_doorbell_id0 is not 0, Queue preemption time out"
    assert scan(catalogue, line).action is Action.RESET_GPU
