"""The real agent on hosts that are not as they should be: one clear line, the right finding, and it goes on."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.agent_bench import AgentBench, agent

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

IMPATIENT: dict[str, Any] = {"sampler": {"discovery_seconds": 1.0, "unresponsive_after_seconds": 1.0}}


def bad(found: dict[str, Any]) -> bool:
    return bool(found["readiness"] == "bad")


def _missing_library(bench: AgentBench) -> None:
    bench.environ["LD_LIBRARY_PATH"] = str(bench.folder)


def _missing_binding(bench: AgentBench) -> None:
    (bench.folder / "pynvml.py").write_text("raise ImportError('no such library')\n")
    bench.environ["PYTHONPATH"] = f"{bench.folder}:{bench.environ.get('PYTHONPATH', '')}"


def _answers(**lines: Any) -> Callable[[AgentBench], None]:
    return lambda bench: bench.scenario.put("lib", {what.replace("__", "."): value for what, value in lines.items()})


@pytest.mark.parametrize(
    ("spoil", "defines", "code", "says"),
    [
        pytest.param(_missing_library, (), "agent.driver_missing", "NVML", id="vendor_library_missing"),
        pytest.param(_missing_binding, (), "agent.driver_missing", "install fleetd[nvidia]", id="binding_missing"),
        pytest.param(
            _answers(), ("NO_INIT",), "agent.driver_missing", "too old for nvidia-ml-py; update", id="library_too_old"
        ),
        pytest.param(
            _answers(error__Init=18), (), "agent.driver_missing", "ersion mismatch", id="library_of_the_wrong_version"
        ),
        pytest.param(_answers(error__Init=9), (), "agent.driver_missing", "river", id="driver_not_loaded"),
        pytest.param(
            _answers(error__Init=4), (), "agent.driver_unresponsive", "Insufficient Permissions", id="no_permission"
        ),
        pytest.param(_answers(count=0), (), "agent.driver_unresponsive", "names no GPU", id="no_gpu"),
    ],
)
def test_a_host_without_usable_gpus_is_one_finding_and_the_agent_goes_on(
    tmp_path: Path, spoil: Callable[[AgentBench], None], defines: tuple[str, ...], code: str, says: str
) -> None:
    with agent(tmp_path, gpus=1, defines=defines, start=False, **IMPATIENT) as bench:
        spoil(bench)
        bench.start()
        bench.hears("READY=1")
        bench.until(bad, "the finding stands")
        (told,) = bench.logged("silent")
        assert (told["code"], told["gpu"]) == (code, None)
        assert says in told["why"]
        check = bench.check()
        assert (check.returncode, check.stderr.count("\n")) == (1, 1)
        assert f"bad: {code}: " in check.stderr
        assert says in check.stderr
        assert "Traceback" not in bench.log()
        assert bench.metrics()[0] < 10.0
        assert bench.stop()[0] == 0


def test_a_gpu_that_is_added_later_is_found(tmp_path: Path) -> None:
    # This machine's kernel lists no GPU that comes and goes: found by the look that is made in any case.
    with agent(tmp_path, gpus=2, start=False, devices={"fresh_look_interval_seconds": 1.0}) as bench:
        bench.scenario.put("lib", {"count": 1})
        bench.start()
        bench.until(lambda found: len(found["gpus"]) == 1, "the first GPU is found")
        bench.scenario.put("lib", {"count": 2})
        bench.until(
            lambda found: [gpu["gpu"] for gpu in found["gpus"] if gpu["answers"]] == ["GPU-0", "GPU-1"],
            "the second is found without a restart",
        )
        assert bench.ask()["readiness"] == "ready"


def test_a_host_that_gets_its_driver_later_becomes_ready(tmp_path: Path) -> None:
    with agent(tmp_path, gpus=1, start=False, **IMPATIENT) as bench:
        bench.scenario.put("lib", {"error.Init": 9})
        bench.start()
        bench.until(bad, "there is no driver")
        bench.scenario.take_back("lib", "error")
        bench.until(lambda found: found["readiness"] == "ready", "the driver was loaded")


def test_in_a_container_without_the_kernel_log_the_agent_goes_on_and_says_so(tmp_path: Path) -> None:
    with agent(tmp_path, gpus=1, kernel_log={"source": str(tmp_path / "dev" / "kmsg")}) as bench:
        bench.until(lambda found: found["readiness"] == "ready", "the GPUs are read")
        found = bench.ask()
        assert found["kernel_log_age_seconds"] is None, "it was never read"
        assert found["errors_total"]["kernel_log"] > 0
        assert 'fleetd_agent_errors_total{kind="kernel_log"}' in bench.metrics()[1]
        (line,) = bench.logged("kernel_log_trouble")
        assert "the kernel log cannot be read: No such file or directory" in line["why"]


def test_contradictory_sensors_are_no_readings_and_a_contradiction_of_counters_is_no_hardware_fault(
    tmp_path: Path,
) -> None:
    with agent(
        tmp_path, gpus=2, sampler={"interval_seconds": 0.2}, devices={"slow_reading_interval_seconds": 0.2}
    ) as bench:
        bench.until(lambda found: found["readiness"] == "ready", "the GPUs are read")
        # 4 GW, minus no degrees, a clock of 4 THz, and a limit below the smallest.
        bench.scenario.put(
            0,
            {
                "PowerUsage": 2**32 - 1,
                "field.186": f"{2**32 - 1}u",
                "Temperature.0": 2**31 - 1,
                "ClockInfo.1": 2**32 - 1,
            },
        )
        bench.until(lambda _: 'fleetd_gpu_power_watts{gpu="GPU-0"}' not in bench.metrics()[1], "no such power")
        text = bench.metrics()[1]
        assert 'fleetd_gpu_power_watts{gpu="GPU-1"}' in text
        for name in ("temperature_celsius", "sm_clock_hertz"):
            assert f'fleetd_gpu_{name}{{gpu="GPU-0"}}' not in text, name
            assert f'fleetd_gpu_{name}{{gpu="GPU-1"}}' in text, name
        # Both counters jump alike by what polling invents, and the kernel says nothing.
        for jump in (1_048_560, 2_097_120, 3_145_680):
            bench.scenario.put(1, {"TotalEccErrors.0": 7 + jump, "TotalEccErrors.1": jump})
            bench.until(lambda found: found["findings_total"] >= 1, "it is told")
        events = [event["code"] for gpu in bench.ask()["gpus"] for event in gpu["events"]]
        assert "telemetry.counters.implausible" in events
        assert "telemetry.ecc.uncorrected" not in events
        assert bench.ask()["readiness"] == "ready", "nothing is wrong with the hardware"
