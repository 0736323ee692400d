"""GPUs are left as they were found, and that is read, not believed; who else uses them is noticed."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from burnin.processes import settings
from burnin.processes.settings import lookout, settings_of
from burnin.verdict.settings import LEFT_BYTES, Settings, changes, compared

FOUND = Settings(
    power_limit_watts=700.0,
    application_sm_clock_hertz=1.98e9,
    application_memory_clock_hertz=3.201e9,
    persistence=True,
    compute_mode=0,
    memory_used_bytes=500 << 20,
)


class _NvmlError(Exception):
    pass


def nvml(**more: Any) -> SimpleNamespace:
    def missing(*_: object) -> None:
        raise _NvmlError

    calls: dict[str, Any] = {
        "nvmlInit": lambda: None,
        "nvmlDeviceGetHandleByUUID": lambda _gpu: "handle",
        "nvmlDeviceGetPowerManagementLimit": lambda _h: 700_000,
        "nvmlDeviceGetApplicationsClock": lambda _h, kind: 1980 if kind == 1 else 3201,
        "nvmlDeviceGetPersistenceMode": lambda _h: 1,
        "nvmlDeviceGetComputeMode": lambda _h: 0,
        "nvmlDeviceGetMemoryInfo": lambda _h: SimpleNamespace(used=500 << 20),
    }
    missed = {name: missing for name, call in more.items() if call is None}
    return SimpleNamespace(NVMLError=_NvmlError, NVML_CLOCK_SM=1, NVML_CLOCK_MEM=2, **{**calls, **more, **missed})


def test_nvml_says_how_a_gpu_is_set_and_only_that_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    library = nvml()
    monkeypatch.setitem(sys.modules, "pynvml", library)
    assert settings_of("cuda", ["GPU-1"]) == {"GPU-1": FOUND}
    assert not [name for name in vars(library) if "Set" in name]


def test_what_a_gpu_does_not_have_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml(nvmlDeviceGetApplicationsClock=None, nvmlDeviceGetMemoryInfo=None))
    told = settings_of("cuda", ["GPU-1"])["GPU-1"]
    assert (told.application_sm_clock_hertz, told.memory_used_bytes, told.power_limit_watts) == (None, None, 700.0)


def test_amd_tells_its_power_cap_and_level(monkeypatch: pytest.MonkeyPatch) -> None:
    library = SimpleNamespace(
        AmdSmiException=_NvmlError,
        AmdSmiMemoryType=SimpleNamespace(VRAM=0),
        amdsmi_init=lambda: None,
        amdsmi_get_processor_handles=lambda: ["h"],
        amdsmi_get_gpu_device_uuid=lambda _h: "abc",
        amdsmi_get_power_cap_info=lambda _h: {"power_cap": 1_000_000_000},
        amdsmi_get_gpu_memory_usage=lambda _h, _kind: 300 << 20,
        amdsmi_get_gpu_perf_level=lambda _h: "AMDSMI_DEV_PERF_LEVEL_AUTO",
    )
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setitem(sys.modules, "amdsmi", library)
    level = "AMDSMI_DEV_PERF_LEVEL_AUTO"
    assert settings_of("cuda", ["GPU-abc"]) == {
        "GPU-abc": Settings(power_limit_watts=1000.0, performance_level=level, memory_used_bytes=300 << 20)
    }


def test_where_nothing_can_be_read_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    monkeypatch.setattr(settings, "smi_rows", lambda *_: [])
    assert settings_of("cuda", ["GPU-1"]) == {}
    assert settings_of("sim", ["SIM-1"]) == {}
    monkeypatch.setattr(settings, "smi_rows", lambda *_: [["700.00", "[N/A]", "3201", "500"]])
    assert settings_of("cuda", ["GPU-1"])["GPU-1"] == Settings(
        power_limit_watts=700.0, application_memory_clock_hertz=3.201e9, memory_used_bytes=500 << 20
    )


def test_what_is_not_as_it_was_found_is_told_in_words() -> None:
    assert changes(FOUND, FOUND) == []
    lower = Settings(power_limit_watts=600.0, persistence=False, memory_used_bytes=FOUND.memory_used_bytes)
    assert changes(FOUND, lower) == ["power limit was 700 and is 600", "persistence mode: True → False"]
    small, large = (Settings(memory_used_bytes=(500 << 20) + more) for more in (LEFT_BYTES, LEFT_BYTES + (1 << 20)))
    assert changes(Settings(memory_used_bytes=500 << 20), small) == []
    assert changes(Settings(memory_used_bytes=500 << 20), large) == [
        "65 MiB of its memory are in use that were free before"
    ]


def test_a_gpu_that_was_not_read_again_is_not_compared() -> None:
    (one,) = compared({"a": FOUND, "b": FOUND}, {"a": FOUND})
    assert (one["gpu"], one["changes"], one["before"] == one["after"]) == ("a", [], True)


def looks(*seen: Mapping[str, Sequence[int]]) -> dict[str, list[int]] | None:
    """What the lookout says of these looks; None: nothing."""
    said: Iterator[Mapping[str, Sequence[int]]] = iter(seen)

    class Over(Exception):  # noqa: N818 - no error
        pass

    def users() -> Mapping[str, Sequence[int]]:
        try:
            return next(said)
        except StopIteration:
            raise Over from None

    try:
        return lookout(users, own=(100, 101), wait=lambda: None)
    except Over:
        return None


@pytest.mark.parametrize(
    ("seen", "told"),
    [
        ([{"g": [100]}, {"g": [100]}], None),
        ([{"g": [100]}, {"g": [100, 7]}], {"g": [7]}),
        ([{"g": []}, {"g": [101]}, {"g": [7]}], {"g": [7]}),
        ([{"g": [5000], "h": [5001]}, {"g": [5000], "h": [5001]}], None),  # our own, as a container's host counts
        ([{"g": [5000]}, {"g": [5000, 9]}], {"g": [9]}),
        ([{"g": [5000, 6000]}], {"g": [5000, 6000]}),  # two at once: one of them came before we looked
        ([{"g": [100], "h": [101]}, {"g": [100], "h": [101, 8, 7]}], {"h": [7, 8]}),
    ],
)
def test_whoever_comes_is_noticed_and_our_own_are_not(
    seen: list[Mapping[str, Sequence[int]]], told: dict[str, list[int]] | None
) -> None:
    assert looks(*seen) == told
