"""The fake vendor libraries: how they are built, what moves in them, and what makes a fake host of them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fleetd.sim.vendorlibs import amd, nvidia
from fleetd.sim.vendorlibs.host import VENDORS, FakeHost
from fleetd.sim.vendorlibs.libraries import SOURCES, NoFakeLibrary, cache, private
from tests.fakelibs.nvidia_fake import LIBRARIES

needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc builds the fake libraries")
STRICT = ["gcc", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"]
NVIDIA_READS = """
import pynvml as n
n.nvmlInit()
h = n.nvmlDeviceGetHandleByIndex(1)
for _ in range(50):
    print(n.nvmlDeviceGetPowerUsage(h), n.nvmlDeviceGetTotalEnergyConsumption(h))
"""
AMD_READS = """
import amdsmi as a
a.amdsmi_init()
h = a.amdsmi_get_processor_handles()[1]
for _ in range(50):
    print(a.amdsmi_get_power_info(h)["current_socket_power"], a.amdsmi_get_energy_count(h)["energy_accumulator"])
"""


def host(folder: Path, vendor: str, gpus: int = 2) -> FakeHost:
    return FakeHost(folder, host="h1", vendor=vendor, gpus=gpus, libraries=LIBRARIES)


@needs_gcc
@pytest.mark.parametrize("defines", [(), ("-DNO_INIT",), ("-DOLD",)])
def test_the_c_sources_compile_without_a_warning(defines: tuple[str, ...]) -> None:
    home = amd.build(LIBRARIES)
    subprocess.run([*STRICT, *defines, str(SOURCES / "nvml.c")], check=True)
    subprocess.run([*STRICT, f"-I{home}", str(SOURCES / "amd_smi.c")], check=True)


@needs_gcc
@pytest.mark.parametrize(
    ("vendor", "code", "watts"), [("nvidia", NVIDIA_READS, (676_000, 694_000)), ("amd", AMD_READS, (678, 702))]
)
def test_power_wanders_and_energy_grows_over_the_real_binding(
    tmp_path: Path, vendor: str, code: str, watts: tuple[int, int]
) -> None:
    fake = host(tmp_path, vendor)
    out = subprocess.run([sys.executable, "-c", code], env=fake.environ(), capture_output=True, text=True, check=True)
    power, energy = zip(*(map(int, line.split()) for line in out.stdout.splitlines()), strict=True)
    assert all(watts[0] <= value <= watts[1] for value in power)
    assert list(energy) == sorted(energy)
    assert energy[-1] > energy[0]


@needs_gcc
@pytest.mark.parametrize("vendor", VENDORS)
def test_a_library_is_built_once_by_processes_that_begin_together(tmp_path: Path, vendor: str) -> None:
    code = (
        f"from pathlib import Path; from fleetd.sim.vendorlibs.{vendor} import build; print(build(Path('{tmp_path}')))"
    )
    both = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    homes = {process.communicate(timeout=250)[0] for process in both}
    assert [process.returncode for process in both] == [0, 0]
    assert [f"{path}\n" for path in tmp_path.iterdir()] == list(homes), "one library, and nothing left over"


@needs_gcc
def test_burn_ins_of_a_fake_host_compute_on_simulated_gpus_as_the_scenario_says(tmp_path: Path) -> None:
    fake = host(tmp_path, "nvidia", gpus=4)
    burner = fake.config["burner"]
    assert isinstance(burner, dict)

    def told() -> str:
        command = [burner["python"], "-c", "import sys; print(sys.argv[1:])", "--backend=auto"]
        return subprocess.run(command, env=fake.environ(), capture_output=True, text=True, check=True).stdout.strip()

    assert told() == "['--backend=auto', '--backend=sim', '--gpus=4']"
    fake.burn_in(seed=7, inject="gpu=1,fault=F03,rate=0.3")
    assert told() == (
        "['--backend=auto', '--backend=sim', '--gpus=4', '--seed=7', '--inject=gpu=1,fault=F03,rate=0.3']"
    )


@needs_gcc
def test_libraries_that_a_user_names_are_kept_behind_the_fake(tmp_path: Path) -> None:
    environ = host(tmp_path, "nvidia").environ({"LD_LIBRARY_PATH": "/opt/site/lib"})
    fake, site = environ["LD_LIBRARY_PATH"].split(":")
    assert (Path(fake) / "libnvidia-ml.so.1").exists()
    assert site == "/opt/site/lib"


@pytest.mark.parametrize("vendor", VENDORS)
def test_without_gcc_it_is_said_what_to_install(tmp_path: Path, vendor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoFakeLibrary, match="gcc, which builds them, is not installed; install gcc"):
        FakeHost(tmp_path, host="h1", vendor=vendor, gpus=1, libraries=tmp_path / "cache")


def test_a_compiler_that_fails_is_quoted_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gcc = tmp_path / "gcc"
    gcc.write_text("#!/bin/sh\necho 'in file' >&2\necho 'math.h: error: no such file' >&2\necho 'ended.' >&2\nexit 1\n")
    gcc.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoFakeLibrary, match=r"^gcc did not work: math.h: error: no such file$"):
        nvidia.build(tmp_path / "cache")


@pytest.mark.parametrize("mode", [0o770, 0o707])
def test_no_library_is_loaded_from_where_others_may_write(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "cache"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(NoFakeLibrary, match="others may write there"):
        private(folder)


def test_a_cache_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NoFakeLibrary, match="Not a directory; name a folder of yours in XDG_CACHE_HOME"):
        private(tmp_path / "file" / "cache")


def test_the_cache_is_where_the_user_keeps_caches(tmp_path: Path) -> None:
    assert cache({"XDG_CACHE_HOME": str(tmp_path)}) == tmp_path / "fleetd" / "vendorlibs"
    home = Path.home() / ".cache" / "fleetd" / "vendorlibs"
    assert [cache({}), cache({"XDG_CACHE_HOME": ""}), cache({"XDG_CACHE_HOME": "relative"})] == [home] * 3


def test_a_vendor_without_a_fake_is_said(tmp_path: Path) -> None:
    with pytest.raises(NoFakeLibrary, match="no fake library of intel; there are: nvidia, amd"):
        host(tmp_path, "intel")


@needs_gcc
@pytest.mark.parametrize("vendor", VENDORS)
def test_a_host_is_read_by_a_process_that_knows_nothing_of_the_fake(tmp_path: Path, vendor: str) -> None:
    fake = host(tmp_path, vendor)
    code = (
        "from fleetd.devices.vendor import reader_of\n"
        f"reader = reader_of('{vendor}')\nreader.open()\nprint([gpu['gpu'] for gpu in reader.inventory()])"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], env=fake.environ(os.environ), capture_output=True, text=True, check=True
    )
    assert out.stdout.strip() == "['SIM-h1-00', 'SIM-h1-01']"
