"""A vendor of one's own by `module:factory`: the example works, and what is wrong with one is a clear line."""

import os
from pathlib import Path

import pytest

from fleetd.devices.config import DevicesConfig
from fleetd.devices.helper import HelperDevices
from fleetd.model.telemetry import GpuSample
from fleetd.ports import DeviceError, DriverMissing
from tests.agent.fakes_agent import FakeClock
from tests.devices.nvidia_bench import CONFIG, run

HERE = str(Path(__file__).parent)


def devices(vendor: str, root: Path) -> HelperDevices:
    path = os.pathsep.join([HERE, *filter(None, [os.environ.get("PYTHONPATH")])])
    environ = {**os.environ, "PYTHONPATH": path, "EXAMPLE_ROOT": str(root)}
    return HelperDevices(vendor=vendor, clock=FakeClock(), config=CONFIG, environ=environ)


def part(root: Path, serial: str, milliwatts: int) -> None:
    (root / serial / "links").mkdir(parents=True)
    (root / serial / "power_mw").write_text(f"{milliwatts}\n")
    (root / serial / "links" / "0").write_text("1")


def test_the_example_is_a_vendor_like_any_other(tmp_path: Path) -> None:
    async def case() -> None:
        part(tmp_path, "EX-1", 250_500)
        part(tmp_path, "EX-2", 2**32 - 1)
        host = devices("example_vendor:ExampleReader", tmp_path)
        first, second = await host.sample()
        assert first == GpuSample(gpu="EX-1", at_s=first.at_s, power_watts=250.5, fabric_link_up_ratio=(("0", 1.0),))
        assert (second.power_watts, second.implausible_readings_total) == (None, (("power_watts", 1.0),))
        (tmp_path / "EX-1" / "power_mw").unlink()
        assert [sample.gpu for sample in await host.sample()] == ["EX-2"]
        assert host.troubles == {"EX-1": "EX-1 does not answer: No such file or directory"}
        await host.close()

    run(case())


def test_one_that_names_no_gpu_says_so(tmp_path: Path) -> None:
    async def case() -> None:
        host = devices("example_vendor:ExampleReader", tmp_path)
        with pytest.raises(DeviceError, match=r"^the example_vendor:ExampleReader library names no GPU$"):
            await host.sample()
        part(tmp_path, "EX-1", 250_500)
        assert [sample.gpu for sample in await host.sample()] == ["EX-1"]
        await host.close()

    run(case())


@pytest.mark.parametrize(
    ("vendor", "says"),
    [
        ("example_vendor:ExampleReader", "the example driver is not loaded"),
        ("no_such_module:Reader", "there is no vendor reader no_such_module:Reader"),
        ("example_vendor:Nothing", "has no attribute 'Nothing'"),
        ("example_vendor:__doc__", "is no vendor; known are nvidia, amd and module:factory"),
    ],
)
def test_what_cannot_be_used_says_why(tmp_path: Path, vendor: str, says: str) -> None:
    async def case() -> None:
        host = devices(vendor, tmp_path / "not there")
        with pytest.raises(DriverMissing, match=says):
            await host.inventory()
        await host.close()

    run(case())


@pytest.mark.parametrize("backend", ["nvidia", "amd", "sim", "package.module:Factory"])
def test_backends_that_are_some(backend: str) -> None:
    assert DevicesConfig(backend=backend).backend == backend


@pytest.mark.parametrize("backend", ["", "cuda", "a:b:c", "module:", "os;rm:x", "../x:y"])
def test_backends_that_are_none(backend: str) -> None:
    with pytest.raises(ValueError, match="backend: "):
        DevicesConfig(backend=backend)
