"""Whatever is fed: no crash, no invented fault, and it is said when nothing can be judged."""

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetd.core.faults.catalogue import Catalogue
from fleetd.core.faults.observation import MAX_TEXT, MAX_UNRECOGNISED, ScanResult
from fleetd.core.faults.scan import MAX_LINE_BYTES, LogScan

INPUTS = sorted((Path(__file__).parent / "inputs").glob("*.txt"))
KERNEL = [path.read_bytes() for path in INPUTS if "\n# kind: kernel-" in path.read_text(encoding="utf-8")]
LOG = b"\n".join(text.partition(b"# ---\n")[2] for text in KERNEL)


def scan(catalogue: Catalogue, *blocks: bytes) -> ScanResult:
    log = LogScan(catalogue)
    for block in blocks:
        log.feed(block)
    return log.finish()


@given(st.binary(max_size=2000))
@settings(max_examples=200, deadline=None)
def test_garbage_is_no_fault(catalogue: Catalogue, garbage: bytes) -> None:
    result = scan(catalogue, garbage)
    assert not [finding for finding in result.findings if finding.alias.startswith(("XID", "SXID"))]


@given(seed=st.integers(0, 2**32), cuts=st.integers(0, 40))
@settings(max_examples=30, deadline=None)
def test_how_the_log_is_cut_into_blocks_changes_nothing(catalogue: Catalogue, seed: int, cuts: int) -> None:
    rnd = random.Random(seed)  # noqa: S311 - hypothesis keeps the seed
    places = sorted(rnd.sample(range(len(LOG)), cuts))
    blocks = [LOG[a:b] for a, b in zip([0, *places], [*places, len(LOG)], strict=True)]
    assert scan(catalogue, *blocks) == scan(catalogue, LOG)


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_a_damaged_log_invents_no_number(catalogue: Catalogue, data: st.DataObject) -> None:
    """Deleting bytes may lose a fault; a code that is not in the text can only come from digits that were joined."""
    text = bytearray(data.draw(st.sampled_from(KERNEL)).partition(b"# ---\n")[2])
    for _ in range(data.draw(st.integers(0, 20))):
        if text:
            place = data.draw(st.integers(0, len(text) - 1))
            text[place : place + 1] = data.draw(st.sampled_from([b"", b" ", b"\xff", b"\x00", b"\n", b"\xc3"]))
    result = scan(catalogue, bytes(text))
    assert all(finding.why for finding in result.findings)
    assert (result.action is None) == (result.cannot_judge is not None)


@pytest.mark.parametrize("change", [bytes.lower, bytes.upper, lambda text: text.replace(b" ", b"  ")])
def test_case_and_blanks_do_not_matter_to_xids(catalogue: Catalogue, change: "type[bytes.lower]") -> None:
    for text in KERNEL:
        body = text.partition(b"# ---\n")[2]
        plain = {f.alias for f in scan(catalogue, body).findings if f.alias.startswith("XID")}
        assert {f.alias for f in scan(catalogue, change(body)).findings if f.alias.startswith("XID")} == plain


@pytest.mark.parametrize("size", range(0, 62, 3))
def test_a_truncated_line_is_not_another_xid(catalogue: Catalogue, size: int) -> None:
    line = b"[ 1.0] NVRM: Xid (PCI:0000:3b:00): 119, pid=1, name=python"
    result = scan(catalogue, line[:size])
    assert {finding.alias for finding in result.findings} <= {"XID119"}


def test_a_line_of_a_megabyte_costs_only_its_beginning(catalogue: Catalogue) -> None:
    fault = b"[1.0] NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n"
    for long in (b"amdgpu " + b"x" * (1 << 20), b"nvrm: " * (1 << 17), b"[drm" * (1 << 18), b"\xc3" * (1 << 20)):
        for blocks in ([long + b"\n" + fault], [long[:3000], long[3000:], b"\n" + fault], [fault + long]):
            result = scan(catalogue, *blocks)
            assert [finding.alias for finding in result.findings] == ["XID79"]
            assert result.findings[0].lines == ((1,) if blocks[0].startswith(fault) else (2,))
    assert MAX_LINE_BYTES < 1 << 20


def test_a_flood_is_listed_up_to_a_bound(catalogue: Catalogue) -> None:
    lines = b"".join(b"[%d.0] NVRM: something new failed: error %d\n" % (n, n) for n in range(5000))
    result = scan(catalogue, lines)
    assert (len(result.unrecognised), result.unrecognised_total) == (MAX_UNRECOGNISED, 5000)
    assert all(len(item.text) <= MAX_TEXT for item in result.unrecognised)


def test_two_cpus_in_one_line_are_two_faults(catalogue: Catalogue) -> None:
    line = b"NVRM: Xid (PCI:0000:82:00): 13, pid=1, Graphics ExcepNVRM: Xid (PCI:0000:83:00): 31, pid=2, Ch 1"
    found = {(finding.alias, finding.device) for finding in scan(catalogue, line).findings}
    assert found == {("XID13", "0000:82:00"), ("XID31", "0000:83:00")}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "the input is empty"),
        (b"\x00\x01\x02PNG\x00\n" * 20, "not text"),
        ("NVRM: Xid".encode("utf-16"), "not text"),
        (b"NVRM: Xid (PCI:0000:aa:00): abc, pid=1\n", "look like XIDs"),
        (b"[1.0] NVRM: Xid (PCI:0000:aa:00): 7", "look like XIDs"),
        (b"Dear all,\nthe node is slow again.\n", "not recognised as a kernel log"),
        (b"Our GPU shows an error, NVRM says Xid 79.\n", "not recognised as a kernel log"),
        (b"My amdgpu card is slow today, what failed?\n", "not recognised as a kernel log"),
    ],
)
def test_it_is_said_when_nothing_can_be_judged(catalogue: Catalogue, text: bytes, reason: str) -> None:
    result = scan(catalogue, text)
    assert result.action is None
    assert result.cannot_judge is not None
    assert reason in result.cannot_judge


def test_a_healthy_log_is_judged_healthy(catalogue: Catalogue) -> None:
    text = b"[    0.000000] Linux version 6.8.0\n[    4.1] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  570.1\n"
    result = scan(catalogue, text)
    assert (result.action.value if result.action else None, result.findings, result.unrecognised) == ("none", (), ())


@pytest.mark.parametrize(
    "line",
    [
        b"NVRM: loading NVIDIA UNIX x86_64 Kernel Module  570.1\n",
        b"amdgpu 0000:c1:00.0: amdgpu: ring gfx uses VM inv eng 0 on hub 0\n",
        b"[drm] amdgpu kernel modesetting enabled.\n",
        b"kern.log:n1 kernel: NVRM: loading NVIDIA UNIX x86_64 Kernel Module  570.1\n",
        b"nvidia 0000:3b:00.0: enabling device (0140 -> 0142)\n",
        b"nvidia-nvswitch0: open (major=510)\n",
    ],
)
def test_a_healthy_log_without_times_is_a_log(catalogue: Catalogue, line: bytes) -> None:
    result = scan(catalogue, line)
    assert (result.action.value if result.action else None, result.findings) == ("none", ())


def test_a_log_of_several_boots_says_so(catalogue: Catalogue) -> None:
    result = scan(catalogue, b"[    0.000000] Linux version 6.8.0\n[ 9.0] x\n" * 2)
    assert any("2 boots" in note for note in result.notes)
