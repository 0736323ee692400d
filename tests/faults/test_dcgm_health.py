"""`dcgmi health` and `dcgmi nvlink -e`: each trouble once, at the GPU it is of."""

import json

import pytest

from fleetd.core.faults.documents.read import read
from fleetd.core.policy import Action
from tests.faults.make_documents import scan

CUT = """| Overall Health            | Failure                  |
| GPU                       |                          |
| -> 0                      | Healthy                  |
| -> 2                      | Failure                  |
|    -> Errors              |                          |
|       -> Memory system    | Failure                  |
|                           | A DBE was detected in GP |
|                           | U 2. Run a field diagnos |
|                           | tic on the GPU.          |
|       -> Driver system    | Warning                  |
"""
OLD = """| Overall Health: Warning                        |
+------------------+-----------------------------+
| GPU ID: 1        | Warning                     |
|                  | PCIe system: Warning - Dete |
|                  | cted more than 8 PCIe repla |
|                  | ys per minute for GPU 1: 13 |
"""
ERRORS = """+-----------------------------+------------------+
| NVLINK Error Counts                             |
| GPU 3                                           |
+=============================+==================+
| Link 0                      |                  |
| -> CRC FLIT Error           | {crc}            |
| -> Replay Error             | N/A              |
| -> Recovery Error           | {recovery}       |
+-----------------------------+------------------+
"""


def found(text: str) -> list[tuple[str, str | None, Action]]:
    return [(finding.alias, finding.device, finding.action) for finding in scan(text, None).findings]


def document(status: str, **systems: str) -> str:
    errors = {name: {"value": status, "children": {"Error": {"value": said}}} for name, said in systems.items()}
    gpu = {"value": status, "children": {"Errors": {"children": errors}}}
    body = {"Overall Health": {"value": status}, "GPU": {"children": {"5": gpu}}}
    return json.dumps({"body": body, "header": ["Health Monitor Report"]})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (CUT, [("DCGM_4_VOLATILE_DBE_DETECTED", "GPU 2", Action.RESET_GPU),
               ("DCGM_TEST_FAILED", "GPU 2", Action.MONITOR)]),
        (OLD, [("DCGM_3_PCI_REPLAY_RATE", "GPU 1", Action.MONITOR)]),
        (document("Failure", Memory="A DBE was detected"),
         [("DCGM_4_VOLATILE_DBE_DETECTED", "GPU 5", Action.RESET_GPU)]),
        (document("Failure", Thermal="a sentence of a newer version"), [("DCGM_TEST_FAILED", "GPU 5", Action.DRAIN)]),
        (document("Failure"), [("DCGM_TEST_FAILED", "GPU 5", Action.DRAIN)]),
        ("| Overall Health | Failure |\n", [("DCGM_TEST_FAILED", None, Action.DRAIN)]),
        (ERRORS.format(crc=7, recovery=0), [("NVLINK_CRC", "GPU 3", Action.MONITOR)]),
        (ERRORS.format(crc=0, recovery=1), [("NVLINK_RECOVERY", "GPU 3", Action.RESET_GPU)]),
    ],
)  # fmt: skip
def test_each_trouble_is_told_once_at_its_gpu(text: str, expected: list[tuple[str, str | None, Action]]) -> None:
    assert found(text) == expected


@pytest.mark.parametrize(
    "text", ["| Overall Health            | Healthy |\n", document("Healthy"), ERRORS.format(crc=0, recovery=0)]
)
def test_what_is_healthy_is_judged_so(text: str) -> None:
    result = scan(text, None)
    assert (result.action, result.findings) == (Action.NONE, ())


def test_a_sentence_that_is_not_known_is_listed() -> None:
    result = scan(document("Warning", Thermal="a sentence of a newer version"), None)
    assert [item.text for item in result.unrecognised] == ["a sentence of a newer version"]
    assert result.action is Action.MONITOR


def test_what_is_mangled_invents_no_gpu() -> None:
    assert read('{"body": {"Overall Health": {}}}') is None
    listed = '{"body": {"Overall Health": {"value": "Failure"}, "GPU": {"children": [1]}}}'
    for text in ("| Overall Health | Failure |\n| -> " * 50, listed):
        assert {device for _, device, _ in found(text)} == {None}


ROCM = "GPU[4]: \tRAS INFO\n         Block     Status  Correctable Error Uncorrectable Error\n"


@pytest.mark.parametrize(
    "row", ["           UMC    ENABLED         0          {}\n", "GPU[4]\t: UMC  ENABLED  0   {}\n"]
)
def test_rocm_smi_counts_of_a_block(row: str) -> None:
    assert found(ROCM + row.format(3)) == [("RAS_UE", "GPU 4", Action.DRAIN)]
    assert found(ROCM + row.format(0)) == []


def test_the_metrics_of_xgmi_links_are_read() -> None:
    links = [{"gpu": 1, "bdf": "0000:22:00.0", "read": "0 KB", "write": "0 KB"}]
    text = json.dumps({"xgmi_metric": [{"gpu": 0, "bdf": "0000:0c:00.0", "link_metrics": {"links": links}}]})
    assert scan(text, None).action is Action.NONE
