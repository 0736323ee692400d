"""The governor over a real guard and a C library: modes, transactions, and whose doing a limit is."""

import asyncio
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from tests.powerguard.governor_bench import SUSTAINED, governed, run, tuned
from tests.powerguard.guard_bench import MOVING, PRIOR, SAFE, WAIT_S, AmdBench

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc builds the fake library")


def test_by_default_it_observes_and_writes_nothing(tmp_path: Path) -> None:
    async def case() -> None:
        async with governed(tmp_path, mode="observe", start=False) as host:
            found = await host.gpu()
            assert (found.mode, found.targets_watts, found.set_watts) == ("observe", {}, {"limit": PRIOR})
            host.foreign(500.0)
            found = await host.gpu()
            assert "another program" in found.why
            assert host.governor.status().drift_total == {"foreign": 1}
            assert host.guard.sets() == []

    run(case())


def test_safe_then_boost_by_the_set_point_and_back_when_it_no_longer_holds(tmp_path: Path) -> None:
    async def case() -> None:
        point = tuned(tmp_path / "point.json")
        async with governed(tmp_path, set_point=point) as host:
            first = await host.gpu()
            assert (first.mode, host.guard.limits()) == ("safe", [SAFE, SAFE])
            await host.until("boost")
            await host.gpu()
            assert host.guard.limits() == pytest.approx([SUSTAINED, SUSTAINED], abs=0.1)
            # A19: another firmware, another set-point file, an expired one.
            host.inventory[0] = replace(host.inventory[0], firmware="581.1")
            found = await host.until("safe", "it was tuned under firmware 580.159, this is 581.1")
            assert host.guard.limits() == pytest.approx([SAFE, SUSTAINED], abs=0.1), found
            host.inventory[0] = replace(host.inventory[0], firmware="580.159")
            await host.until("boost")
            tuned(point, seconds=-1.0)
            await host.until("safe", "it has expired")
            point.unlink()
            await host.until("safe", "there is no such file")
            assert host.guard.limits() == [SAFE, SAFE]

    run(case())


def test_without_a_guard_it_says_so_and_goes_on_when_there_is_one(tmp_path: Path) -> None:
    async def case() -> None:
        async with governed(tmp_path, start=False) as host:
            found = await host.gpu()
            assert found.mode == "safe"
            assert "no power guard at" in found.why
            assert not host.governor.status().lease_live
            host.guard.start()
            await host.until("safe", "no set-point")
            assert host.guard.limits() == [SAFE, SAFE]
            # A9: the guard is killed; another one comes.
            assert host.guard.guard is not None
            host.guard.guard.kill()
            host.guard.guard.wait()
            await host.until("safe", "hung up")
            host.guard.start()
            await host.until("safe", "no set-point")

    run(case())


def test_what_the_guard_wrote_is_nobody_elses_doing(tmp_path: Path) -> None:
    async def case() -> None:
        async with governed(tmp_path, set_point=tuned(tmp_path / "point.json")) as host:
            await host.until("boost")
            assert host.guard.ask(do="restore", to="safe")["ok"]
            await host.until("safe", "restored")
            assert host.governor.status().drift_total.keys() <= {"guard"}
            await host.until("boost")

    run(case())


@pytest.mark.parametrize("turns", [3])
def test_a11_who_moved_a_limit(tmp_path: Path, turns: int) -> None:
    async def case() -> None:
        async with governed(tmp_path, gpus=1, set_point=tuned(tmp_path / "point.json")) as host:
            for turn in range(1, turns + 1):
                await host.until("boost")
                host.foreign(PRIOR)
                found = await host.gpu()
                assert found.writer == "foreign"
                assert host.guard.limits() == [SAFE], "a raise is taken back in the same turn"
                await host.until("boost")
                host.guard.scenario.put(0, {"OutOfBandLimit": 500_000})
                found = await host.gpu()
                assert found.writer == "out_of_band"
                host.guard.scenario.put(0, {"OutOfBandLimit": None})
                await host.until("boost")
                host.guard.scenario.put(0, {"TotalEnergyConsumption": 5_000_000_000_123 - turn})
                host.forget()
                found = await host.gpu()
                assert found.writer == "driver_reload"
                assert host.guard.limits() == [SAFE]
            drift = host.governor.status().drift_total
            assert (drift["foreign"], drift["driver_reload"]) == (turns, turns)
            assert drift["out_of_band"] >= turns

    run(case())


def test_a_lower_limit_of_somebody_else_is_kept_also_by_a_fall(tmp_path: Path) -> None:
    async def case() -> None:
        async with governed(tmp_path, gpus=1, set_point=tuned(tmp_path / "point.json")) as host:
            await host.until("boost")
            host.foreign(500.0)
            found = await host.until("safe", "another program lowered limit to 500 W, which is kept")
            assert found.writer == "foreign"
            assert host.guard.limits() == [500.0]
            await host.governor._line.disarm()
            assert host.guard.limits() == [500.0]

    run(case())


def test_one_of_eight_that_cannot_be_written_and_one_that_does_not_take_it(tmp_path: Path) -> None:
    async def case() -> None:
        async with governed(tmp_path, gpus=8) as host:
            host.guard.scenario.put(2, {"error.SetPowerManagementLimit": 4})
            host.guard.scenario.put(5, {"stuck": 1})
            await host.governor.turn()
            status = host.governor.status()
            assert "no permission" in status.gpus[2].why
            assert "the write was not taken" in status.gpus[5].why
            assert [status.gpus[n].writer for n in (2, 5)] == ["not_taken"] * 2
            others = [n for n in range(8) if n not in {2, 5}]
            assert [host.guard.limits()[n] for n in others] == [SAFE] * 6
            assert status.write_errors_total == 2
            before = len(host.guard.lines("SetPowerManagementLimit"))
            rests = host.governor._rests._until
            for name, (until_s, why) in list(rests.items()):
                rests[name] = (until_s + WAIT_S, why)  # else a slow test may be over its first rest, of a second
            await host.governor.turn()
            assert len(host.guard.lines("SetPowerManagementLimit")) == before, "it rests"

    run(case())


def test_mig_and_parts_of_another_envelope_are_left_alone(tmp_path: Path) -> None:
    async def case() -> None:
        async with governed(tmp_path, gpus=3) as host:
            host.guard.scenario.put(0, {"mig.0": "MIG-1"})
            host.guard.scenario.put(1, {"PowerManagementLimitConstraints.0": 650_000})
            host.inventory[2] = replace(host.inventory[2], sku="NVIDIA H100")
            await host.governor.turn()
            found = host.governor.status().gpus
            assert [one.mode for one in found] == ["observe"] * 3
            assert "MIG is on" in found[0].why
            assert "650 W, is above the safe 630 W" in found[1].why
            assert "the envelope is for H200" in found[2].why
            assert host.guard.sets() == []

    run(case())


def test_bad_sensors_and_a_silent_driver_never_boost(tmp_path: Path) -> None:
    async def case() -> None:
        async with governed(tmp_path, gpus=1, set_point=tuned(tmp_path / "point.json")) as host:
            await host.until("boost")
            for bad in ({"PowerUsage": 0}, {"PowerUsage": 2**32 - 1}, {"PowerUsage": 3_000_000}, {"error": 15}):
                host.guard.scenario.put(0, bad)
                found = await host.gpu()
                assert found.mode == "safe", bad
                host.guard.scenario.put(0, {"PowerUsage": MOVING, "error": None})
                await host.until("boost")

    run(case())


def test_a_released_driver_is_held_by_nobody(tmp_path: Path) -> None:
    async def case() -> None:
        async with governed(tmp_path, gpus=1) as host:
            await host.until("safe", "no set-point")
            host.released = True
            await host.governor.turn()
            assert not host.governor.status().lease_live
            assert host.guard.limits() == [SAFE]
            host.released = False
            await host.until("safe", "no set-point")

    run(case())


def test_a_program_that_was_replaced_is_told_and_keeps_safe(tmp_path: Path) -> None:
    async def case() -> None:
        async with governed(tmp_path, gpus=1, set_point=tuned(tmp_path / "point.json")) as host:
            await host.until("boost")
            host.governor._line.program_replaced = True
            found = await host.gpu()
            assert found.mode == "safe"
            assert "systemctl reload fleetd-powerguard" in found.why

    run(case())


def test_a_loop_that_stands_still_loses_its_lease(tmp_path: Path) -> None:
    async def case() -> None:
        async with governed(tmp_path, gpus=1, interval_seconds=0.02, set_point=tuned(tmp_path / "point.json")) as host:
            await host.until("boost")
            await asyncio.to_thread(host.guard.until, SAFE)  # nobody takes a turn meanwhile
            assert "the lease lapsed" in host.guard.ask(do="status")["fallen"]

    run(case())


def test_a_stop_hands_over_or_falls(tmp_path: Path) -> None:
    async def case() -> None:
        point = tuned(tmp_path / "point.json")
        async with governed(tmp_path, gpus=1, set_point=point, hand_over_seconds=60.0) as host:
            running = asyncio.create_task(host.governor.run())
            await asyncio.to_thread(host.guard.until, 671.999)
            running.cancel()
            await asyncio.wait({running})
            assert host.guard.ask(do="status")["live"]
            assert host.guard.limits() == [671.999]
            assert host.guard.guard is not None
            host.guard.guard.send_signal(signal.SIGTERM)
            host.guard.guard.wait()
            assert host.guard.limits() == [SAFE]

    run(case())


def test_amd_has_a_pair_of_limiters(tmp_path: Path) -> None:
    async def case() -> None:
        name = "mi350x-platform"
        point = tuned(tmp_path / "point.json", name=name, firmware="another", raw_watts=1300.0)
        async with governed(tmp_path, vendor="amd", envelope=name, set_point=point) as host:
            assert isinstance(host.guard, AmdBench)
            await host.until("safe", "it was tuned under firmware another")
            assert host.guard.pair() == [900.0, 1000.0]
            firmware = host.inventory[0].firmware
            assert firmware is not None
            tuned(point, name=name, firmware=firmware, raw_watts=1300.0)
            await host.until("boost")
            await host.gpu()
            low, high = host.guard.pair()
            assert (900.0 < low < 1000.0, high) == (True, 1300.0)
            host.guard.scenario.put(0, {"oob": 500_000_000})
            assert (await host.gpu()).writer == "out_of_band"
            host.guard.scenario.put(0, {"oob": None})
            await host.until("boost")
            host.forget()
            host.guard.scenario.put(0, {"energy_count": 10})
            found = await host.gpu()
            assert found.writer == "driver_reload"
            assert host.guard.pair() == [900.0, 1000.0]
            sets = [line.split()[1:] for line in host.guard.scenario.lines(".sets") if line.startswith("0 ")]
            assert sets[:2] == [["0", "900000000"], ["1", "1000000000"]], "down: the lower limiter first"
            assert [sensor for sensor, _ in sets[2:4]] == ["1", "0"], "up: the higher one first"

    run(case())


def test_the_ring_of_samples_shows_what_the_reading_hides(tmp_path: Path) -> None:
    async def case() -> None:
        async with governed(tmp_path, gpus=2, mode="observe", start=False) as host:
            ring = " ".join(["650000"] * 24 + ["913000"])  # one sample in half a second
            host.guard.scenario.put(0, {"ring": ring})
            host.guard.scenario.put(1, {"error.Samples": 999})
            found = [await host.gpu(0), host.governor.status().gpus[1]]
            assert found[0].seen is not None
            assert found[0].seen.spacing_s == pytest.approx(0.02)
            assert found[0].seen.windows_watts["20ms"] == pytest.approx(913.0, rel=1e-3)
            assert found[0].seen.windows_watts["1s"] == pytest.approx((48 * 650 + 2 * 913) / 50, rel=0.01)
            assert found[0].seen.swing_watts == pytest.approx(263.0)
            assert found[1].seen is None, "two seconds of readings have yet to come"
            assert found[1].defaults_watts == {"limit": PRIOR}
            assert len(host.guard.lines("Samples")) == 3, "the size, then the samples; of the other GPU an error"

    run(case())


# ── locked clocks ───────────────────────────────────────────────────────────────────────────────────────────────────

CAP_HERTZ = 1.41e9


def test_a_set_point_with_a_clock_locks_it_and_safe_frees_it(tmp_path: Path) -> None:
    async def case() -> None:
        point = tuned(tmp_path / "point.json", clock_hertz=CAP_HERTZ)
        async with governed(tmp_path, set_point=point) as host:
            assert (await host.gpu()).clock_limit_hertz is None
            await host.until("boost")
            found = await host.gpu()
            assert (host.guard.clocks(), found.clock_limit_hertz) == ([1410, 1410], CAP_HERTZ)
            assert host.guard.limits() == pytest.approx([SUSTAINED, SUSTAINED], abs=0.1)
            locks = len(host.guard.lines("SetGpuLockedClocks"))
            await host.governor.turn()
            assert len(host.guard.lines("SetGpuLockedClocks")) == locks, "once"
            point.unlink()
            await host.until("safe", "there is no such file")
            assert (host.guard.clocks(), host.guard.limits()) == ([None, None], [SAFE, SAFE])
            assert host.governor.status().gpus[0].clock_limit_hertz is None

    run(case())


def test_a_clock_above_the_lock_is_safe_and_says_so(tmp_path: Path) -> None:
    async def case() -> None:
        point = tuned(tmp_path / "point.json", clock_hertz=CAP_HERTZ)
        async with governed(tmp_path, gpus=1, set_point=point) as host:
            await host.until("boost")
            await host.gpu()
            host.free_clock()
            host.guard.scenario.put(0, {"ClockInfo.1": 1980})
            found = await host.gpu()
            assert found.mode == "safe"
            assert "the clock is 1980 MHz where 1410 was locked: another program freed it" in found.why
            assert (host.guard.limits(), host.guard.clocks()) == ([SAFE], [None])

    run(case())


def test_one_of_eight_whose_clock_cannot_be_locked_is_safe_and_the_others_boost(tmp_path: Path) -> None:
    async def case() -> None:
        point = tuned(tmp_path / "point.json", clock_hertz=CAP_HERTZ)
        async with governed(tmp_path, gpus=8, set_point=point) as host:
            host.guard.scenario.put(3, {"error.SetGpuLockedClocks": 4})
            host.guard.scenario.put(6, {"mig.0": "MIG-1"})
            await host.until("boost")
            await host.governor.turn()
            gpus = host.governor.status().gpus
            assert (gpus[3].mode, gpus[6].mode) == ("safe", "observe")
            assert "clock: locked clock: no permission (4)" in gpus[3].why
            assert "MIG is on" in gpus[6].why
            others = [n for n in range(8) if n not in {3, 6}]
            assert {host.guard.clocks()[n] for n in others} == {1410}
            assert (host.guard.limits()[3], host.guard.clocks()[3]) == (SAFE, None), (
                "no limit goes up without its clock"
            )
            assert (host.guard.limits()[6], host.guard.clocks()[6]) == (PRIOR, None)

    run(case())


def test_the_next_agent_frees_a_clock_that_was_handed_over(tmp_path: Path) -> None:
    async def case() -> None:
        point = tuned(tmp_path / "point.json", clock_hertz=CAP_HERTZ)
        async with governed(tmp_path, gpus=1, set_point=point) as host:
            await host.until("boost")
            await host.gpu()
            assert not await host.governor._line.hand_over(10.0)
            assert host.guard.clocks() == [1410], "kept for the next agent"
            point.unlink()
            await host.until("safe", "there is no such file")
            assert (host.guard.limits(), host.guard.clocks()) == ([SAFE], [None])

    run(case())
