"""The real agent process on a fake vendor library: READY first, hangs, the end, reload, release. Default deadlines."""

import json
import signal
import tarfile
from pathlib import Path

import pytest

from tests.e2e.agent_bench import agent

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


QUICK_S = 10.0
"""A second or two on a quiet machine. What hangs here hangs until it is let go, so that who waited for it would be late
by any bound."""
FOUND_S = 30.0
"""Ten seconds on a quiet machine; by the clock alone, whatever the machine does: `tests/agent/test_sampler.py`."""


def silent(found: dict) -> list[str]:  # type: ignore[type-arg]
    return [gpu["gpu"] for gpu in found["gpus"] if not gpu["answers"]]


def test_s33_ready_and_the_sign_of_life_do_not_wait_for_a_driver_that_hangs(tmp_path: Path) -> None:
    with agent(tmp_path, start=False) as bench:
        bench.scenario.put("lib", {"hang.Init": 1})
        bench.start(WATCHDOG_USEC="1000000")
        bench.hears("READY=1")
        # The sign of life is the event loop's: it goes on while the driver does not answer.
        before_s = bench.hears("WATCHDOG=1")
        for _ in range(3):
            next_s = bench.hears("WATCHDOG=1")
            assert next_s - before_s < QUICK_S
            before_s = next_s
        assert bench.ask()["readiness"] == "cannot_tell"
        took_s, _ = bench.metrics()
        assert took_s < QUICK_S
        code, took_s = bench.stop()
        assert (code, took_s < QUICK_S) == (0, True), f"{took_s:.2f} s"
        bench.hears("STOPPING=1")


def test_s33_s34_a_hang_is_a_finding_soon_and_nobody_waits_for_it(tmp_path: Path) -> None:
    with agent(tmp_path) as bench:
        bench.until(lambda found: len(found["gpus"]) == 3 and not silent(found), "all GPUs answer")
        bench.scenario.put(1, {"hang.PowerUsage": 1})
        took_s = bench.until(lambda found: found["silent_gpus"] == 1, "the hang is a finding")
        assert took_s <= FOUND_S
        (told,) = bench.logged("silent")
        assert (told["code"], told["gpu"]) == ("agent.driver_unresponsive", "GPU-1")
        # The others go on, with readings that are made anew.
        bench.until(
            lambda found: silent(found) == ["GPU-1"] and found["sample_age_seconds"] < QUICK_S, "the others are sampled"
        )
        took_s, text = bench.metrics()
        assert took_s < QUICK_S
        assert 'fleetd_gpu_power_watts{gpu="GPU-0"}' in text
        assert 'fleetd_gpu_power_watts{gpu="GPU-1"}' not in text, "a reading from before the hang is not the present"
        assert bench.check().returncode == 1
        # Now another one hangs, and the agent is stopped in the middle of that call.
        bench.scenario.put(2, {"hang.PowerUsage": 1})
        bench.until(lambda found: found["sample_age_seconds"] > 1.5, "a call is under way that does not return")
        code, took_s = bench.stop()
        assert (code, took_s < QUICK_S) == (0, True), f"{took_s:.2f} s"
        # S34: nobody was killed inside the driver: those that hung came out of it and shut the library down in order.
        bench.close()
        assert sorted(bench.scenario.lines(".ends")) == sorted(bench.scenario.lines(".starts"))


def test_s33_three_of_eight_that_hang_at_once_are_told_soon_and_the_five_go_on(tmp_path: Path) -> None:
    with agent(tmp_path, gpus=8) as bench:
        bench.until(lambda found: len(found["gpus"]) == 8 and not silent(found), "all GPUs answer")
        for gpu in (1, 4, 6):
            bench.scenario.put(gpu, {"hang.PowerUsage": 1})
        sick = ["GPU-1", "GPU-4", "GPU-6"]
        took_s = bench.until(lambda found: found["silent_gpus"] == 3, "each hang is a finding")
        assert took_s <= FOUND_S
        assert sorted(told["gpu"] for told in bench.logged("silent")) == sick
        bench.until(
            lambda found: silent(found) == sick and found["sample_age_seconds"] < QUICK_S, "the five are sampled"
        )
        took_s, text = bench.metrics()
        assert took_s < QUICK_S
        assert text.count("\nfleetd_gpu_power_watts{") == 5
        code, took_s = bench.stop()
        assert (code, took_s < QUICK_S) == (0, True), f"{took_s:.2f} s"
        bench.close()
        assert sorted(bench.scenario.lines(".ends")) == sorted(bench.scenario.lines(".starts")), "nobody was killed"


def test_sighup_applies_a_good_file_and_keeps_the_last_good_one_of_a_bad(tmp_path: Path) -> None:
    with agent(tmp_path, gpus=1) as bench:
        bench.file.write_text("kind: [\n")
        bench.signal(signal.SIGHUP)
        bench.hears("RELOADING=1")
        bench.hears("READY=1")
        (refused,) = bench.logged("reload_refused")
        assert str(bench.file) in refused["why"]
        assert "fleetd_agent_config_last_reload_successful 0" in bench.metrics()[1]
        bench.configure(sampler={"interval_seconds": 0.2})
        bench.signal(signal.SIGHUP)
        bench.hears("RELOADING=1")
        bench.hears("READY=1")
        assert "fleetd_agent_config_last_reload_successful 1" in bench.metrics()[1]
        assert "fleetd_agent_config_restart_needed 0" in bench.metrics()[1]


def test_s44_release_on_request_and_attached_again(tmp_path: Path) -> None:
    with agent(tmp_path, gpus=2) as bench:
        bench.until(lambda found: len(found["gpus"]) == 2, "the GPUs are found")
        done = bench.cli("agent", "release", "--for", "600", "--socket", str(bench.status))
        assert done.returncode == 0, done.stderr
        assert bench.scenario.lines(".starts") == bench.scenario.lines(".ends"), "no process has the library open"
        assert bench.ask()["readiness"] == "cannot_tell"
        assert "released" in bench.ask()["why"]
        assert bench.check().returncode == 3
        assert bench.cli("agent", "release", "--for", "99999", "--socket", str(bench.status)).returncode == 2
        bench.until(lambda found: found["sample_age_seconds"] is None, "what was read before does not count")
        assert bench.cli("agent", "attach", "--socket", str(bench.status)).returncode == 0
        bench.until(lambda found: found["readiness"] == "ready", "the GPUs are read again")
        assert len(bench.scenario.lines(".starts")) == 2
        gone = bench.cli("agent", "attach", "--socket", str(tmp_path / "none.sock"))
        assert (gone.returncode, gone.stderr.count("\n")) == (3, 1)


def test_a_bundle_of_a_living_agent_has_its_status_and_readings(tmp_path: Path) -> None:
    with agent(tmp_path, gpus=2) as bench:
        bench.until(lambda found: found["readiness"] == "ready", "the GPUs are read")
        calls = len(bench.scenario.lines(".starts"))
        out = tmp_path / "b.tar.gz"
        done = bench.cli("bundle", "--config", str(bench.file), "--socket", str(bench.status), "--out", str(out))
        assert done.returncode == 0, done.stderr
        with tarfile.open(out) as tar:
            files = {one.name.removeprefix("fleetd-bundle/"): tar.extractfile(one) for one in tar}
            status, metrics = (file.read().decode() for file in (files["status.json"], files["metrics.txt"]) if file)
        assert json.loads(status)["readiness"] == "ready"
        assert "fleetd_gpu_power_watts" in metrics
        assert "GPU-0" not in status + metrics, "the GPUs have pseudonyms"
        assert '"[gpu-1]"' in status
        assert 'gpu="[gpu-1]"' in metrics
        assert len(bench.scenario.lines(".starts")) == calls, "no library was opened for it"
