"""A short window of readings: what is kept is what was read, in bounded memory."""

import tracemalloc

import pytest

from fleetd.controller.window import GPUS_MAX, POINTS, Windows
from fleetd.model.ids import GpuId, HostName
from fleetd.model.telemetry import GpuSample
from fleetd.ports.view import WINDOW_METRICS

HOST = HostName("h1")


def _sample(gpu: str, at_s: float, power: float | None = None) -> GpuSample:
    return GpuSample(gpu=GpuId(gpu), at_s=at_s, power_watts=power)


def test_the_newest_readings_are_kept_oldest_first() -> None:
    windows = Windows()
    assert windows.of(HOST).at_s == ()
    for number in range(POINTS + 7):
        windows.add(HOST, [_sample("a", float(number), number * 2.0), _sample("b", float(number))])
    window = windows.of(HOST)
    assert window.at_s == tuple(float(n) for n in range(7, POINTS + 7))
    assert list(window.series) == ["a", "b"]
    assert window.series[GpuId("a")]["power_watts"] == [n * 2.0 for n in range(7, POINTS + 7)]
    assert window.series[GpuId("b")]["power_watts"] == [None] * POINTS
    assert set(window.series[GpuId("a")]) == set(WINDOW_METRICS)


def test_a_gpu_that_is_missing_for_a_while_was_not_read_and_a_new_one_begins_anew() -> None:
    windows = Windows()
    windows.add(HOST, [_sample("a", 1, 1.0), _sample("b", 1, 2.0)])
    windows.add(HOST, [_sample("b", 2, 3.0)])
    assert windows.of(HOST).series[GpuId("a")]["power_watts"] == [1.0, None]
    windows.add(HOST, [])
    assert windows.of(HOST).at_s == (1, 2)
    windows.add(HOST, [_sample("b", 3, 4.0), _sample("c", 3, 5.0)])
    assert windows.of(HOST).at_s == (3,)
    assert list(windows.of(HOST).series) == ["b", "c"]


def test_a_host_with_very_many_gpus_keeps_the_first_and_goes_on() -> None:
    windows = Windows()
    for at_s in (1.0, 2.0):
        windows.add(HOST, [_sample(f"g{n}", at_s, 1.0) for n in range(GPUS_MAX + 50)])
    window = windows.of(HOST)
    assert (len(window.series), window.at_s) == (GPUS_MAX, (1.0, 2.0))


def test_memory_is_what_is_promised() -> None:
    """A kibibyte a GPU, eight a host; 40,000 GPUs of 5,000 hosts in less than 50 MiB."""
    windows = Windows()
    tracemalloc.start()
    for number in range(400):
        for at_s in (1.0, 2.0):
            windows.add(HostName(f"h{number}"), [_sample(f"{number}-{n}", at_s, 500.0) for n in range(8)])
    used, _peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used / 400 < 10 * 1024
    assert windows.of(HostName("h399")).series[GpuId("399-7")]["power_watts"][-1] == pytest.approx(500.0)
