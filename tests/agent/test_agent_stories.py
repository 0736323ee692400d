"""Incidents of other people's monitors, and the tests that hold that they do not happen here."""

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

STORIES: dict[str, tuple[str, ...]] = {
    "S32 one sick GPU blinds the node": (
        "devices/test_stories_nvidia.py::test_s32_s35_one_sick_gpu_blinds_nobody_and_is_called_once",
        "devices/test_amd_reader.py::test_s32_a_gpu_whose_call_hangs_is_left_alone_and_the_others_go_on",
        "core/test_core_detect.py::test_s32_a_storm_of_corrected_errors_is_one_finding",
        "devices/test_helper_devices.py::test_back_off_doubles_to_its_maximum_while_opening_fails",
    ),
    "S33 a probe hangs inside the driver": (
        "e2e/test_agent_never_in_the_way.py::test_s33_ready_and_the_sign_of_life_do_not_wait_for_a_driver_that_hangs",
        "e2e/test_agent_never_in_the_way.py::test_s33_s34_a_hang_is_a_finding_soon_and_nobody_waits_for_it",
        "agent/test_status_socket.py::test_check_loads_nothing_heavy",
    ),
    "S34 killing the exporter wedges the GPU": (
        "e2e/test_agent_never_in_the_way.py::test_s33_s34_a_hang_is_a_finding_soon_and_nobody_waits_for_it",
        "devices/test_stories_nvidia.py::test_s34_a_helper_inside_a_call_is_asked_to_end_and_never_killed",
        "deploy/test_systemd_unit.py::test_s34_nothing_is_killed_inside_a_driver_call",
    ),
    "S35 probes pile up behind a hung driver": (
        "devices/test_stories_nvidia.py::test_s32_s35_one_sick_gpu_blinds_nobody_and_is_called_once",
        "devices/test_helper_devices.py::test_helpers_that_are_stuck_are_never_joined_by_more_than_the_limit",
        "devices/test_many_hang.py::test_when_all_hang_no_more_is_started_than_one_for_each",
    ),
    "S36 leaks and death by memory": (
        "agent/test_memory.py::test_s36_an_agent_that_leaks_restarts_itself_before_the_memory_limit",
        "core/test_core_gate.py::test_s36_a_flood_of_mild_faults_is_bounded_and_does_not_hide_the_bad_one",
    ),
    "S37 floods of CPU and log": (
        "compose/test_log_limit.py::test_s37_a_flood_of_one_message_is_limited_and_said",
        "exporter/test_cost.py::test_s37_calls_and_series_do_not_grow_with_mig_slices_and_their_processes",
        "exporter/test_cost.py::test_s37_a_hundred_scrapes_of_one_round_make_the_readings_once",
        "devices/test_partitions.py::test_s37_partitions_of_a_gpu_cost_no_further_calls",
    ),
    "S38 a collector wakes or disturbs the GPU": ("devices/test_amd_reader.py::test_s38_a_suspended_gpu_is_not_asked",),
    "S39 counters invented by polling": (
        "core/test_core_detect.py::test_s39_counters_that_polling_invents_are_a_defect_of_telemetry",
    ),
    "S40 a gauge loses or keeps events": (
        "core/test_core_detect.py::test_s40_the_worse_source_wins_and_only_its_own_all_clear_ends_it",
        "core/test_core_gate.py::test_s40_that_nothing_new_happens_is_no_proof",
    ),
    "S41 zeros that are none": (
        "core/test_core_detect.py::test_s41_a_zero_on_a_busy_gpu_is_not_idle_and_absent_is_not_zero",
        "devices/test_nvidia_devices.py::test_efficiency_that_cannot_be_had_is_absent_and_never_zero",
    ),
    "S42 polling hurts a slow driver": (
        "devices/test_stories_nvidia.py::test_s42_a_driver_that_became_slow_is_asked_less_often",
    ),
    "S43 a fault is visible only outside the container": (
        "agent/test_detector.py::test_s43_a_kernel_log_fault_stands_against_its_gpu_for_the_job_to_see",
        "agent/test_status_socket.py::test_s43_anybody_on_the_host_may_read_and_nobody_can_write",
    ),
    "S44 the monitor's own handles block a reset": (
        "agent/test_attachment.py::test_s44_on_request_no_process_of_the_agent_holds_a_gpu_and_it_attaches_afterwards",
        "agent/test_attachment.py::test_s44_a_helper_that_is_stuck_in_the_driver_is_named_as_a_holder",
        "agent/test_holders.py::test_s44_the_processes_that_hold_a_gpu_are_named",
        "devices/test_stories_nvidia.py::test_s44_after_close_no_process_of_ours_holds_the_gpus",
        "e2e/test_agent_never_in_the_way.py::test_s44_release_on_request_and_attached_again",
    ),
    "S45 a reset that says it succeeded": (
        "core/test_core_gate.py::test_s45_a_reset_that_says_it_succeeded_proves_nothing_on_amd",
    ),
}
"""Story → tests. What a test's name says is what is held."""


def named_in(path: Path) -> dict[str, bool]:
    """Names of a file's tests, and whether a decorator skips them or expects them to fail."""
    found: dict[str, bool] = {}
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            marks = " ".join(ast.unparse(mark) for mark in node.decorator_list)
            found[node.name] = re.search(r"\bmark\.(skip|xfail)", marks) is not None
    return found


@pytest.mark.parametrize("story", STORIES)
def test_the_tests_of_a_story_are_there_and_run(story: str) -> None:
    assert STORIES[story]
    for test in STORIES[story]:
        file, name = test.split("::")
        found = named_in(TESTS / file)
        assert name in found, f"{story}: {test} is gone: name the test that holds it now"
        assert not found[name], f"{story}: {test} does not run"


def test_every_story_of_the_agent_has_its_tests() -> None:
    assert [story.split()[0] for story in STORIES] == [f"S{number}" for number in range(32, 46)]
