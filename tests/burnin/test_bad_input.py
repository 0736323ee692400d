"""What a host may lack, or hold back: each is told in words, skipped or left unjudged, and blames nobody."""

import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from burnin.inject import check
from burnin.listing import ALONE, note_missing
from burnin.options import in_use
from burnin.processes import readers
from burnin.processes.backends import device_of
from burnin.processes.senses import heats
from burnin.session import Session
from burnin.spec import Case, Device, Inject, SpecError
from burnin.telling.result import State
from burnin.tests import TESTS
from burnin.verdict.health import Facts
from burnin.workloads import MissingError
from burnin.workloads.memory import require_memory
from burnin.workloads.missing import missing, refusal
from burnin.workloads.plans import Plan

CUDA = torch.device("cuda")
WHOLE = SimpleNamespace(uuid="1", name="Some GPU", multi_processor_count=132, major=9, minor=0, total_memory=140 << 30)


def device(properties: SimpleNamespace = WHOLE, **facts: str) -> Device:
    return device_of(properties, Facts(**facts), ordinal=3, versions={"torch": "2"})  # type: ignore[arg-type]


def test_a_part_of_a_gpu_is_another_kind_with_its_own_memory() -> None:
    part = SimpleNamespace(**{**vars(WHOLE), "multi_processor_count": 16, "total_memory": 16 << 30})
    assert device(part).vote_key != device().vote_key
    assert (device(part).sm_count, device(part).memory_bytes) == (16, 16 << 30)
    # The mode alone is enough: a whole chip in one mode may show the same name and size as one in another.
    modes = ("SPX/NPS1", "CPX/NPS4", "mig=0", "mig=1")
    assert len({device(partition=mode).vote_key for mode in modes} | {device().vote_key}) == 5
    assert device(partition="mig=1").index == 3


def amd(monkeypatch: pytest.MonkeyPatch, **more: object) -> readers.Reader:
    class AmdSmiException(Exception):  # noqa: N818 - the library's name
        pass

    def unsupported(*_: object) -> None:
        raise AmdSmiException

    calls = ("gpu_driver_info", "gpu_vbios_info", "gpu_compute_partition", "gpu_memory_partition", "gpu_process_list")
    smi = SimpleNamespace(
        AmdSmiException=AmdSmiException,
        amdsmi_init=lambda: None,
        amdsmi_get_processor_handles=lambda: ["handle"],
        amdsmi_get_gpu_device_uuid=lambda _: "ab-cd",
        **({f"amdsmi_get_{call}": unsupported for call in calls} | {f"amdsmi_get_{n}": v for n, v in more.items()}),
    )
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setitem(sys.modules, "amdsmi", smi)
    return readers.open_reader("cuda", "GPU-ab-cd")


def test_amd_says_how_a_chip_is_partitioned_and_who_uses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = amd(
        monkeypatch,
        gpu_driver_info=lambda _: {"driver_version": "6.12"},
        gpu_vbios_info=lambda _: {"version": "022"},
        gpu_compute_partition=lambda _: "CPX",
        gpu_memory_partition=lambda _: "NPS4",
        gpu_process_list=lambda _: [{"pid": 71}, {"pid": 9}],
    )
    assert reader.facts() == Facts(driver="6.12", firmware="022", partition="CPX/NPS4")
    assert reader.processes() == (9, 71)


def test_amd_without_partitions_is_no_kind_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = amd(monkeypatch)
    assert (reader.facts(), reader.processes()) == (Facts(), ())


def test_users_are_named_by_process_and_only_those_of_chosen_gpus_count() -> None:
    devices = tuple(replace(device(), gpu=f"GPU-{i}", index=i) for i in (0, 4))
    why = in_use(devices, {"GPU-4": (17, 90), "GPU-2": (5,), "GPU-0": ()})
    assert why == "in use: GPU 4 by process 17, 90"
    assert in_use(devices[:1], {"GPU-4": (17,)}) == ""


def test_memory_that_others_hold_is_told_in_words() -> None:
    with pytest.raises(MissingError, match="only 64 of 143360 MiB of memory are free"):
        require_memory(64 << 20, 140 << 30)
    require_memory(8 << 30, 16 << 30)


def plan(dtype: str, path: str = "library") -> Plan:
    return Plan(dtype=dtype, path=path, m=8192, k=8192, n=8192, rounded=False)


@pytest.mark.parametrize(("dtype", "name"), [("int8", "_int_mm"), ("fp8e4m3", "_scaled_mm")])
def test_a_torch_without_the_operation_names_it(dtype: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch, name)
    assert missing(plan(dtype), CUDA) == f"torch {torch.__version__} has no {name}"
    assert missing(plan(dtype, "triton"), CUDA) == ""
    assert missing(plan(dtype), torch.device("cpu")) == ""


def test_a_refusal_is_no_crash_and_a_crash_is_no_refusal() -> None:
    def fails(error: Exception) -> str:
        def attempt() -> None:
            raise error

        return refusal("torch._scaled_mm", attempt)

    assert refusal("torch.mm", lambda: None) == ""
    assert fails(RuntimeError("only for sm_89 and above\nand more")) == (
        "torch._scaled_mm is refused here: only for sm_89 and above"
    )
    assert "is refused here: no such argument" in fails(TypeError("no such argument"))
    for text in ("CUDA error: an illegal memory access", "HIP error: unspecified", "CUDA out of memory. Tried 2 GiB"):
        with pytest.raises(RuntimeError, match=text[:9]):
            fails(RuntimeError(text))


class _Nobody:
    """A progress and a crew that are not asked."""

    living = ()

    def __getattr__(self, name: str) -> object:
        raise AssertionError(name)


def session(gpus: int) -> Session:
    devices = tuple(replace(device(), gpu=f"GPU-{i}", index=i) for i in range(gpus))
    return Session(_Nobody(), devices, monotonic=lambda: 0.0, progress=_Nobody())  # type: ignore[arg-type]


def test_a_case_that_the_library_refuses_is_named_and_leaves_a_required_test_open() -> None:
    asked, state = session(2), State(backend="sim")
    case = Case(test="gemm.exact", name="int8 library", dtype="int8", exact=True, rate_name="r")
    refused = replace(case, missing="no _int_mm")
    asked.skipped["gemm.exact"] = (refused,)
    note_missing(asked, state, [TESTS["gemm.exact"]], named=())
    assert [(one.test, one.why, one.required) for one in state.not_run] == [
        ("gemm.exact", "int8 library: no _int_mm", True)
    ]


@pytest.mark.parametrize(("named", "required"), [((), False), (("copy",), True)])
def test_a_host_of_one_gpu_has_no_links_unless_somebody_asks_for_them(named: tuple[str, ...], required: bool) -> None:
    asked = session(1)
    asked.missing["copy"] = ALONE
    state = State(backend="cuda", devices=asked.devices)
    note_missing(asked, state, [TESTS["copy"]], named=named)
    assert [(one.why, one.required) for one in state.not_run] == [(ALONE, required)]


BF16 = Case(test="gemm.exact", name="bf16 x", dtype="bf16", exact=True, rate_name="r")
HOT = Inject(gpu=0, fault="F08.hot", rate=1.0, seed=1)


def test_a_fault_of_a_hot_chip_needs_a_test_that_heats_it() -> None:
    cases = [BF16, replace(BF16, test="thermal")]
    for backend, chosen in (("cuda", cases[:1]), ("sim", cases)):
        told = check(HOT, chosen, heats=lambda one, on=backend: heats(on, one.test))
        assert told == "F08.hot (above 60 °C)"
    for backend, chosen in (("sim", cases[:1]), ("cpu", cases)):
        with pytest.raises(SpecError, match="no device gets that hot"):
            check(HOT, chosen, heats=lambda one, on=backend: heats(on, one.test))


def test_a_dropped_step_says_what_it_does_where_steps_are_hidden() -> None:
    assert (
        check(replace(HOT, fault="F09"), [BF16])
        == "F09 (dropped K-step; 1/16 of the sums where the library hides its steps)"
    )
