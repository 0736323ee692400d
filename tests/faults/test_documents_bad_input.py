"""Broken, mixed and hostile text: no crash, no invented fault, and in time."""

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleetd.core.faults.documents import loose_json
from fleetd.core.faults.documents.read import FORMATS, read
from tests.faults.make_documents import DOCUMENTS, scan

BODIES = [path.read_text().partition("# ---\n")[2] for path in DOCUMENTS]
SLOW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@SLOW
@given(st.text(max_size=400), st.sampled_from([None, *FORMATS]))
def test_any_text_is_read(text: str, wanted: str | None) -> None:
    document = read(text, wanted)
    assert document is None or document.rest.count("\n") == text.count("\n")


@SLOW
@given(st.sampled_from(BODIES), st.integers(min_value=0), st.sampled_from([None, *FORMATS]))
def test_a_cut_document_is_read(body: str, at: int, wanted: str | None) -> None:
    read(body[: at % (len(body) + 1)], wanted)


@SLOW
@given(st.sampled_from(BODIES), st.randoms(use_true_random=False))
def test_mangled_letters_are_read(body: str, rng: random.Random) -> None:
    letters = list(body)
    for _ in range(20):
        letters[rng.randrange(len(letters))] = rng.choice('\x00{}[]"|:<>&\ufffd \t0x-')
    read("".join(letters))


@SLOW
@given(st.lists(st.sampled_from(BODIES), min_size=2, max_size=4))
def test_several_outputs_in_one_text_keep_their_faults(bodies: list[str]) -> None:
    # A document that cannot be told from the next one may add to it, but none of its faults may be lost.
    together = read("\n\n".join(bodies))
    assert together is not None
    codes = {o.code for o in together.observations}
    for body in bodies:
        alone = read(body)
        assert alone is not None
        missing = {o.code for o in alone.observations} - codes
        assert not {code for code in missing if not code.startswith(("burnin.", "nvidia.dcgm.", "nvidia.nvlink."))}


@pytest.mark.parametrize(
    "text",
    [
        "{" * 300_000,
        '{"a":' * 50_000,
        '[{"a":\n' * 20_000,
        '[{"gpu": 0, "x": "' + "\\" * 100_000,
        " \n" * 200_000,
        "GPU: 0\n" + " " * 300_000 + "x",
        "| a | Fail |\n" + "| " * 200_000,
        "ECC Errors\n" + "a " * 200_000 + ":",
        "# HELP x\n" + 'gpu_health{a="' * 50_000,
        "proc'd: errors: " + "-1 " * 100_000,
        "cper record AFID=[" + "1," * 100_000,
        "<nvidia_smi_log>" + "<gpu>" * 50_000,
    ],
    ids=range(12),
)
@pytest.mark.timeout(200)
def test_a_hostile_text_costs_little(text: str) -> None:
    read(text)


def test_a_log_with_a_program_called_like_a_tool_has_no_fault() -> None:
    text = "Jan  5 10:00:00 h sudo: root : COMMAND=/usr/bin/nvidia-smi -q\nJan  5 10:00:01 h cron[1]: amd-smi metric\n"
    document = read(text)
    assert document is None or not document.observations


def test_many_json_documents_with_text_between_them() -> None:
    found = loose_json.decode('{"a": 1}\ntext\n[{"b": 2}] {"c": 3}\n[   12.3] not json\n{1}[Hardware Error]: no\n')
    assert [value for _, _, value in found.values][:2] == [{"a": 1}, [{"b": 2}]]
    assert [span[:2] for span in found.values][:2] == [(1, 1), (3, 3)]
    assert not found.broken
    assert {4, 5} <= {line for line, _ in found.prose}


def test_abridged_json_is_read_without_touching_strings() -> None:
    found = loose_json.decode('[\n  {"a": "x,} ... y", "b": [1, 2,],},\n  ...\n]\n')
    assert found.repaired
    assert found.values == [(1, 4, [{"a": "x,} ... y", "b": [1, 2]}])]


def test_a_broken_document_without_a_fault_cannot_be_judged() -> None:
    assert scan('[{"gpu": 0, "ecc": {"total_uncorrectable_count": 0').action is None


def test_records_of_the_journal_are_left_for_the_log_scanner() -> None:
    record = '{"__CURSOR": "s=1", "MESSAGE": "NVRM: Xid (PCI:0000:3b:00): 79, pid=1"}'
    assert read(f"{record}\n{record}\n") is None
    document = read(f'{record}\n[{{"gpu": 0, "ecc": {{}}}}]\nplain\n')
    assert document is not None
    assert document.rest == f"{record}\n\nplain\n"
