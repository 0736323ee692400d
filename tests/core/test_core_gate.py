"""The gate: what stands, what clears it, and what may not be taken for ready."""

from typing import Any

import pytest

from fleetd.config.faults import load_catalogue
from fleetd.core.gate import STANDING_MAX, Faults, Gate, Readiness, Standing, ended, expire, gate, proven, put
from fleetd.core.policy import Action
from fleetd.model.finding import Severity
from fleetd.model.ids import GpuId

G0 = GpuId("GPU-0")


def fault(code: str = "telemetry.ecc.uncorrected", **changes: Any) -> Standing:
    values: dict[str, Any] = {
        "code": code,
        "gpu": G0,
        "severity": Severity.ERROR,
        "action": Action.DRAIN,
        "clear": "on_test(smoke)",
        "why": "2 in 5 s",
        "at_s": 1e9,
        "last_s": 100.0,
    }
    return Standing(**(values | changes))


def ask(faults: Faults, **changes: Any) -> Gate:
    values: dict[str, Any] = {
        "gpus": 8,
        "missing": 0,
        "unheard": (),
        "silent_gpus": (),
        "driver_silent": "",
        "age_s": 1.0,
        "stale_s": 30.0,
    }
    return gate(faults, **(values | changes))


def test_ready_needs_a_fresh_reading_of_every_gpu() -> None:
    assert ask({}).readiness is Readiness.READY


@pytest.mark.parametrize(
    ("changes", "readiness"),
    [
        ({"age_s": None}, Readiness.CANNOT_TELL),
        ({"age_s": 31.0}, Readiness.CANNOT_TELL),
        ({"missing": 1, "unheard": (G0,)}, Readiness.CANNOT_TELL),
        ({"silent_gpus": (G0,)}, Readiness.BAD),
        ({"silent_gpus": (G0,), "unheard": (G0,)}, Readiness.BAD),
        ({"driver_silent": "agent.driver_missing: no driver", "age_s": None}, Readiness.BAD),
    ],
)
def test_s21_an_unreadable_or_missing_gpu_is_never_ready(changes: dict[str, Any], readiness: Readiness) -> None:
    answer = ask({}, **changes)
    assert answer.readiness is readiness
    assert answer.why


def test_the_gpu_that_does_not_answer_is_named() -> None:
    one, two = (ask({}, silent_gpus=silent).why for silent in ((G0,), (G0, GpuId("GPU-1"))))
    assert one == "agent.driver_unresponsive: 1 of 8 GPUs do not answer: GPU-0"
    assert two == "agent.driver_unresponsive: 2 of 8 GPUs do not answer: GPU-0 and 1 more"


def test_a_gpu_that_missed_one_round_is_told_and_one_that_was_never_heard_is_named() -> None:
    missed = ask({}, missing=1)
    assert missed.readiness is Readiness.READY, "it may be a call of some seconds"
    assert missed.why.startswith("7 of 8 GPUs answered in the last round, ")
    assert ask({}).why.startswith("8 GPUs answer, ")
    never = ask({}, missing=2, unheard=(G0, GpuId("GPU-1"))).why
    assert never == "2 of 8 GPUs have not answered yet: GPU-0 and 1 more; wait for their first reading"


def test_s21_a_fault_that_needs_an_action_blocks_and_the_worst_is_named() -> None:
    faults = put({}, fault("nvidia.xid.63", action=Action.RESET_GPU))
    faults = put(faults, fault("nvidia.xid.79", severity=Severity.FATAL, action=Action.REBOOT))
    answer = ask(faults)
    assert answer.readiness is Readiness.BAD
    assert answer.why.startswith("nvidia.xid.79 on GPU-0")
    assert "1 more" in answer.why


@pytest.mark.parametrize("action", [Action.NONE, Action.MONITOR, Action.RESTART_APP])
def test_s20_what_is_the_programs_or_only_to_be_watched_blocks_nobody(action: Action) -> None:
    assert ask(put({}, fault("nvidia.xid.31", action=action))).readiness is Readiness.READY


def test_s20_a_fault_with_a_quiet_time_goes_after_it() -> None:
    faults = put({}, fault(clear="after(1h)"))
    assert expire(faults, now_s=100.0 + 3599) == faults
    assert expire(faults, now_s=100.0 + 3600) == {}


def test_s20_a_contained_error_goes_when_its_source_says_that_it_was_reset() -> None:
    faults = put({}, fault("nvidia.remap.pending", clear="on_reset", lasts=True))
    assert expire(faults, now_s=1e9) == faults
    assert ended(faults, "nvidia.remap.pending", G0, now_s=200.0) == {}
    assert ended(faults, "nvidia.remap.pending", GpuId("GPU-1"), now_s=200.0) == faults


def test_s40_that_nothing_new_happens_is_no_proof() -> None:
    """An uncorrected error that does not come again has not been repaired: a burn-in must pass."""
    faults = put({}, fault(lasts=True))
    faults = ended(faults, "telemetry.ecc.uncorrected", G0, now_s=500.0)
    assert ask(faults).readiness is Readiness.BAD
    assert expire(faults, now_s=1e9) == faults
    assert proven(faults) == {}


def test_a_passing_burnin_does_not_clear_what_is_seen_at_this_moment_or_needs_a_person() -> None:
    lasting = put({}, fault("telemetry.link.down", lasts=True))
    manual = put(lasting, fault("nvidia.remap.failed", clear="manual"))
    assert proven(manual) == manual


def test_a_quiet_time_begins_when_the_episode_is_over() -> None:
    faults = put({}, fault("telemetry.pcie.degraded", clear="after(1h)", lasts=True))
    faults = ended(faults, "telemetry.pcie.degraded", G0, now_s=9000.0)
    assert expire(faults, now_s=9000.0 + 3599) != {}
    assert expire(faults, now_s=9000.0 + 3600) == {}


def test_s36_a_flood_of_mild_faults_is_bounded_and_does_not_hide_the_bad_one() -> None:
    faults = put({}, fault("nvidia.xid.79", severity=Severity.FATAL, action=Action.REBOOT, last_s=0.0))
    for number in range(3 * STANDING_MAX):
        faults = put(faults, fault(f"some.code.{number}", action=Action.MONITOR, last_s=float(number)))
    assert len(faults) == STANDING_MAX
    assert ask(faults).why.startswith("nvidia.xid.79")


@pytest.mark.parametrize("code", ["amd.ras.gfx.ue", "amd.ras.umc.ue", "amd.bus.lost", "amd.reset.failed"])
def test_s45_a_reset_that_says_it_succeeded_proves_nothing_on_amd(code: str) -> None:
    """After an uncorrected error the driver's state may be undefined: only what computes rightly is trusted again."""
    entry = load_catalogue().entry(code)
    assert entry.known
    faults = put({}, fault(code, clear=entry.clear, action=entry.action))
    faults = ended(faults, code, G0, now_s=200.0)
    faults = expire(faults, now_s=1e9)
    assert ask(faults).readiness is Readiness.BAD
    assert proven(faults) == {} or entry.clear in {"manual", "on_reboot"}
