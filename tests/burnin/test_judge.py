"""The judge's tables: from ballots, proofs, deaths and counters to classes. No torch, no processes."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from burnin.asking import proofs_needed, retests_needed
from burnin.spec import FaultClass, Inject, Verdict
from burnin.verdict.evidence import Cast, Death, DeathKind, Evidence, Injury, Quota
from burnin.verdict.judge import judge
from tests.burnin.judge_evidence import (
    BAD,
    EXACT,
    FLOAT,
    GOOD,
    WORSE,
    Results,
    blamed,
    evidence,
    proof,
    retested,
    votes,
)


def test_all_agree_pass() -> None:
    result = judge(evidence(8, casts=votes(8, {}) + votes(8, {}, test=FLOAT)))
    assert (result.verdict, blamed(result), result.wrongs) == (Verdict.PASS, {}, ())
    assert {gpu.verdict for gpu in result.gpus} == {Verdict.PASS}


def test_nothing_computed_is_not_a_pass() -> None:
    assert judge(evidence(8)).verdict is Verdict.NOT_JUDGED


@pytest.mark.parametrize("test", [EXACT, FLOAT])
def test_two_different_bad_gpus_among_eight(test: str) -> None:
    wrong: Results = {2: BAD, 6: WORSE}
    casts = votes(8, wrong, test=test) + retested(8, wrong, test=test)
    result = judge(evidence(8, casts=casts))
    assert blamed(result) == {"gpu2": FaultClass.CHIP_PERSISTENT, "gpu6": FaultClass.CHIP_PERSISTENT}
    assert result.verdict is Verdict.FAIL
    assert [gpu.verdict for gpu in result.gpus].count(Verdict.PASS) == 6


def test_wrong_once_is_transient_with_a_strike_and_fails_the_run() -> None:
    result = judge(evidence(8, casts=votes(8, {3: BAD}) + retested(8, {})))
    assert blamed(result) == {"gpu3": FaultClass.CHIP_TRANSIENT}
    assert result.culprits[0].strikes == 1
    assert result.verdict is Verdict.FAIL


def test_a_gpu_that_disagrees_with_itself_loses_to_the_majority() -> None:
    mixed: Results = {5: ((GOOD, 3), (BAD, 1))}
    result = judge(evidence(8, casts=votes(8, mixed, test=FLOAT) + retested(8, mixed, test=FLOAT)))
    assert blamed(result) == {"gpu5": FaultClass.CHIP_PERSISTENT}
    assert "1 of 4 launches" in result.culprits[0].why


def test_most_gpus_unsteady_on_a_float_test_blames_the_software() -> None:
    mixed: Results = dict.fromkeys(range(5), ((GOOD, 3), (BAD, 1)))
    result = judge(evidence(8, casts=votes(8, mixed, test=FLOAT) + votes(8, {})))
    assert (result.verdict, blamed(result)) == (Verdict.NOT_JUDGED, {})
    assert {test.test: test.fault for test in result.tests}[FLOAT] is FaultClass.SOFTWARE_NONDETERMINISM


def test_two_unsteady_gpus_of_two_blame_the_software() -> None:
    mixed: Results = {0: ((GOOD, 3), (BAD, 1)), 1: ((GOOD, 2), (WORSE, 2))}
    result = judge(evidence(2, casts=votes(2, mixed, test=FLOAT) + retested(2, mixed, test=FLOAT)))
    assert (result.verdict, blamed(result)) == (Verdict.NOT_JUDGED, {})


def test_a_tie_of_two_is_broken_by_the_golden() -> None:
    casts = votes(2, {1: BAD}) + retested(2, {1: BAD})
    proofs = (proof(0, GOOD), *(proof(0, GOOD, seed=1 + 100 + again, retest=True) for again in range(5, 10)))
    result = judge(evidence(2, casts=casts, proofs=proofs))
    assert blamed(result) == {"gpu1": FaultClass.CHIP_PERSISTENT}
    assert result.gpus[0].verdict is Verdict.PASS


def test_two_gpus_on_a_float_test_without_a_repeat_are_not_judged() -> None:
    result = judge(evidence(2, casts=votes(2, {1: BAD}, test=FLOAT)))
    assert (result.verdict, blamed(result)) == (Verdict.NOT_JUDGED, {})
    assert {gpu.verdict for gpu in result.gpus} == {Verdict.NOT_JUDGED}


def test_two_gpus_one_unsteady_is_blamed_only_when_it_repeats() -> None:
    mixed: Results = {1: ((GOOD, 3), (BAD, 1))}
    once = judge(evidence(2, casts=votes(2, mixed, test=FLOAT) + retested(2, {}, test=FLOAT)))
    assert (once.verdict, blamed(once)) == (Verdict.NOT_JUDGED, {})
    again = judge(evidence(2, casts=votes(2, mixed, test=FLOAT) + retested(2, mixed, test=FLOAT)))
    assert blamed(again) == {"gpu1": FaultClass.CHIP_PERSISTENT}


def test_an_exact_failure_explains_an_open_float_vote() -> None:
    exact = votes(2, {1: BAD}) + retested(2, {1: BAD})
    proofs = (proof(0, GOOD), *(proof(0, GOOD, seed=101 + again, retest=True) for again in range(5, 10)))
    result = judge(evidence(2, casts=exact + votes(2, {1: WORSE}, test=FLOAT), proofs=proofs))
    assert blamed(result) == {"gpu1": FaultClass.CHIP_PERSISTENT}
    assert result.gpus[0].verdict is Verdict.PASS


def test_four_against_four_blames_nobody() -> None:
    result = judge(evidence(8, casts=votes(8, dict.fromkeys(range(4), BAD), test=FLOAT)))
    assert (result.verdict, blamed(result)) == (Verdict.NOT_JUDGED, {})


def test_everyone_refuted_alike_is_configuration() -> None:
    proofs = (*(proof(i, None) for i in range(4)), proof(0, GOOD, seed=2))
    casts = votes(4, {}, iteration=0) + votes(4, {}, seed=2)
    result = judge(evidence(4, casts=casts, proofs=proofs))
    assert (result.verdict, blamed(result)) == (Verdict.FAIL, {})
    assert result.tests[0].fault is FaultClass.CONFIGURATION


def test_most_wrong_alike_against_the_golden_is_configuration() -> None:
    result = judge(evidence(4, casts=votes(4, {1: BAD, 2: BAD, 3: BAD}), proofs=(proof(0, GOOD),)))
    assert (result.verdict, blamed(result)) == (Verdict.FAIL, {})


@pytest.mark.parametrize("test", [EXACT, FLOAT])
def test_a_majority_with_an_error_in_common_blames_nobody(test: str) -> None:
    wrong: Results = {0: BAD, 1: BAD, 2: BAD}
    casts = votes(4, wrong, iteration=0) + votes(4, wrong, test=test, seed=2) + retested(4, wrong, test=test)
    known = evidence(4, casts=casts, proofs=(proof(3, GOOD),))
    assert ((EXACT, "c", 2) in dict(proofs_needed(known, ["gpu0", "gpu3"]))) is (test == EXACT)
    result = judge(known)
    assert (result.verdict, blamed(result)) == (Verdict.FAIL, {})
    assert "configuration" in result.why


def test_a_whole_key_group_dissenting_alike_is_configuration() -> None:
    result = judge(evidence(8, keys="aaaaaabb", casts=votes(8, {6: BAD, 7: BAD})))
    assert (result.verdict, blamed(result)) == (Verdict.FAIL, {})
    differently = judge(evidence(8, keys="aaaaaabb", casts=votes(8, {6: BAD, 7: WORSE})))
    assert set(blamed(differently)) == {"gpu6", "gpu7"}


def test_one_gpu_refuted_again_is_persistent_and_once_is_transient() -> None:
    casts = votes(1, {0: BAD}, iteration=0) + retested(1, {0: BAD})
    again = judge(evidence(1, casts=casts, proofs=(proof(0, None), proof(0, None, seed=106, retest=True))))
    assert blamed(again) == {"gpu0": FaultClass.CHIP_PERSISTENT}
    once = judge(evidence(1, casts=votes(1, {}, iteration=0), proofs=(proof(0, None),)))
    assert blamed(once) == {"gpu0": FaultClass.CHIP_TRANSIENT}


def test_one_gpu_without_a_golden_is_not_judged_on_an_exact_case() -> None:
    assert judge(evidence(1, casts=votes(1, {}))).verdict is Verdict.NOT_JUDGED
    assert judge(evidence(1, casts=votes(1, {}), proofs=(proof(0, GOOD),))).verdict is Verdict.PASS


def test_float_votes_stay_inside_a_vote_key() -> None:
    result = judge(evidence(8, keys="aaaabbbb", casts=votes(8, dict.fromkeys(range(4, 8), BAD), test=FLOAT)))
    assert result.verdict is Verdict.PASS


def test_two_goldens_for_one_input_are_trusted_neither() -> None:
    result = judge(evidence(2, casts=votes(2, {}), proofs=(proof(0, GOOD), proof(1, BAD))))
    assert result.verdict is Verdict.NOT_JUDGED
    assert "different results were proved" in result.why


def death(gpu: int, kind: DeathKind, why: str = "killed by signal 9") -> Death:
    return Death(gpu=f"gpu{gpu}", test=EXACT, kind=kind, why=why)


@pytest.mark.parametrize(
    ("deaths", "verdict", "fault"),
    [
        ([death(1, DeathKind.CRASH)], Verdict.NOT_JUDGED, None),
        ([death(1, DeathKind.CRASH)] * 2, Verdict.NOT_JUDGED, None),
        ([death(1, DeathKind.HANG)], Verdict.NOT_JUDGED, None),
        ([death(1, DeathKind.HANG)] * 2, Verdict.FAIL, FaultClass.UNRESPONSIVE),
        ([death(1, DeathKind.CRASH, "CUDA error: uncorrectable ECC error")], Verdict.FAIL, FaultClass.MEMORY),
    ],
)
def test_crash_hang_and_ecc_are_three_things(deaths: list[Death], verdict: Verdict, fault: FaultClass | None) -> None:
    result = judge(evidence(4, casts=votes(4, {}), deaths=tuple(deaths)))
    assert result.verdict is verdict
    assert blamed(result) == ({"gpu1": fault} if fault else {})
    assert [gpu.verdict for gpu in result.gpus].count(Verdict.PASS) == 3


def test_a_new_uncorrectable_error_fails_whatever_the_numbers_said() -> None:
    result = judge(evidence(4, casts=votes(4, {}), injuries=(Injury(gpu="gpu2", why="1 new error"),)))
    assert blamed(result) == {"gpu2": FaultClass.MEMORY}


def fault(gpu: int) -> Inject:
    return Inject(gpu=gpu, fault="F03", rate=1.0, seed=7)


def fired(casts: tuple[Cast, ...], gpu: str) -> tuple[Cast, ...]:
    from dataclasses import replace  # noqa: PLC0415 - used here only

    return tuple(replace(cast, ballot=replace(cast.ballot, fired=2)) if cast.gpu == gpu else cast for cast in casts)


@pytest.mark.parametrize(
    ("change", "verdict", "fired_total", "found"),
    [
        (lambda casts: casts, Verdict.NOT_JUDGED, 0, False),
        (lambda casts: fired(casts, "gpu1"), Verdict.NOT_JUDGED, 2, False),
    ],
)
def test_an_injected_fault_that_is_not_found_leaves_the_run_unjudged(
    change: Callable[[tuple[Cast, ...]], tuple[Cast, ...]], verdict: Verdict, fired_total: int, found: bool
) -> None:
    result = judge(evidence(4, casts=change(votes(4, {})), injected=(fault(1),)))
    assert result.verdict is verdict
    assert [(one.index, one.fired, one.found) for one in result.injected] == [(1, fired_total, found)]


def test_an_injected_fault_that_is_found_fails_the_run() -> None:
    casts = fired(votes(4, {1: BAD}), "gpu1")
    result = judge(evidence(4, casts=casts, injected=(fault(1),)))
    assert (result.verdict, result.injected[0].found) == (Verdict.FAIL, True)


def test_gaps_leave_nothing_judged_and_nobody_blamed() -> None:
    result = judge(evidence(8, casts=votes(8, {1: BAD}), gaps=("stopped by SIGTERM",)))
    assert (result.verdict, blamed(result), result.why) == (Verdict.NOT_JUDGED, {}, "stopped by SIGTERM")
    assert result.wrongs


def test_too_little_work_is_not_judged() -> None:
    little = evidence(4, casts=votes(4, {}))
    quotas = {EXACT: Quota(min_launches=4, min_bytes=4096)}
    more = evidence(4, casts=votes(4, {}))
    assert judge(Evidence(devices=more.devices, cases=more.cases, casts=more.casts, quotas=quotas)).verdict is (
        Verdict.PASS
    )
    quotas = {EXACT: Quota(min_launches=5, min_bytes=1)}
    lazy = Evidence(devices=little.devices, cases=little.cases, casts=little.casts, quotas=quotas)
    assert judge(lazy).verdict is Verdict.NOT_JUDGED
    assert "too little work" in judge(lazy).why


def test_one_case_of_which_too_little_was_done_is_not_made_up_for_by_the_others() -> None:
    some = evidence(3, casts=votes(3, {}))
    case = replace(some.cases[EXACT, "c"], name="d")
    few = tuple(replace(c, ballot=replace(c.ballot, case="d", launches=1)) for c in some.casts)
    quotas = {EXACT: Quota(min_launches=2, min_bytes=1)}
    result = judge(replace(some, cases={**some.cases, (EXACT, "d"): case}, casts=some.casts + few, quotas=quotas))
    assert (result.verdict, result.why) == (Verdict.NOT_JUDGED, f"{EXACT}: too little work: 1 launches of d")


def test_launches_that_do_not_count_leave_their_case_open_however_much_else_was_done() -> None:
    lazy, *others = votes(4, {}, seed=2, iteration=2)
    lazy = replace(lazy, ballot=replace(lazy.ballot, launches=0))
    some = evidence(4, casts=(*votes(4, {}), lazy, *others))
    result = judge(replace(some, quotas={EXACT: Quota(min_launches=4, min_bytes=4096)}))
    assert [gpu.verdict.value for gpu in result.gpus] == ["not_judged", "pass", "pass", "pass"]
    assert "c: 4 launches that do not count" in result.why


def test_proofs_rotate_over_gpus_and_end() -> None:
    known = evidence(3, casts=votes(3, {}, iteration=0))
    everyone = ("gpu0", "gpu1", "gpu2")
    asked = []
    for _ in range(5):
        needed = proofs_needed(known, everyone)
        if not needed:
            break
        (_, gpu), *rest = needed
        assert not rest
        asked.append(gpu)
        known = known.plus(proofs=(proof(int(gpu[-1]), None),))
    assert sorted(asked) == list(everyone)
    assert asked[0] == "gpu1"  # the seed says who begins
    assert proofs_needed(evidence(3, casts=votes(3, {}, iteration=0), proofs=(proof(1, GOOD),)), everyone) == ()


def test_later_iterations_are_proved_only_when_the_vote_is_open() -> None:
    everyone = tuple(f"gpu{i}" for i in range(4))
    assert proofs_needed(evidence(4, casts=votes(4, {2: BAD})), everyone) == ()
    assert len(proofs_needed(evidence(4, casts=votes(4, {2: BAD, 3: BAD})), everyone)) == 1
    assert proofs_needed(evidence(4, casts=votes(4, {2: BAD, 3: BAD}, test=FLOAT)), everyone) == ()


def test_every_dissenter_is_retested_once() -> None:
    known = evidence(8, casts=votes(8, {2: BAD, 6: WORSE}))
    assert retests_needed(known) == ((EXACT, "c", 1),)
    assert retests_needed(known.plus(casts=retested(8, {}))) == ()


def test_the_cpu_alone_against_a_launch_that_all_others_confirm_blames_nobody() -> None:
    one = judge(evidence(8, casts=votes(8, {}), proofs=(proof(3, None), proof(4, GOOD))))
    assert (one.verdict, blamed(one)) == (Verdict.NOT_JUDGED, {})
    assert "one launch, not the others" in one.why
    # Two GPUs have nothing in common but the CPU that accuses them.
    casts = votes(8, {}) + votes(8, {}, seed=2)
    two = judge(evidence(8, casts=casts, proofs=(proof(3, None), proof(4, GOOD), proof(5, None, seed=2))))
    assert (two.verdict, blamed(two)) == (Verdict.NOT_JUDGED, {})
    assert "host CPU: it refutes results of 2 GPUs" in two.why
    assert {gpu.verdict for gpu in two.gpus} == {Verdict.NOT_JUDGED}


def test_the_cpu_against_a_gpu_that_the_others_contradict_too_blames_it() -> None:
    result = judge(evidence(8, casts=votes(8, {3: BAD}), proofs=(proof(3, None), proof(4, GOOD))))
    assert set(blamed(result)) == {"gpu3"}


def hangs(gpus: int, *, times: int = 2) -> tuple[Death, ...]:
    return tuple(Death(gpu=f"gpu{i}", test=EXACT, kind=DeathKind.HANG, why="silent") for i in range(gpus)) * times


@pytest.mark.parametrize(("hanging", "culprits"), [(1, 1), (4, 4), (5, 0), (8, 0)])
def test_a_test_that_hangs_on_most_gpus_is_to_blame_itself(hanging: int, culprits: int) -> None:
    result = judge(evidence(8, casts=votes(8, {}), deaths=hangs(hanging)))
    assert len(result.culprits) == culprits
    assert {gpu.verdict for gpu in result.gpus[:hanging]} == {Verdict.FAIL if culprits else Verdict.NOT_JUDGED}
    assert result.verdict is (Verdict.FAIL if culprits else Verdict.NOT_JUDGED)


def test_a_single_gpu_that_hangs_twice_is_unresponsive() -> None:
    assert blamed(judge(evidence(1, deaths=hangs(1)))) == {"gpu0": FaultClass.UNRESPONSIVE}


def test_most_gpus_wrong_at_once_each_in_its_own_way_points_at_software() -> None:
    wrong: Results = {i: f"{i:016x}" for i in range(8)}
    for bad, culprits in ((8, 0), (5, 0), (4, 4), (2, 2)):
        some = {i: wrong[i] for i in range(bad)}
        result = judge(evidence(8, casts=votes(8, some) + retested(8, some), proofs=(proof(7, GOOD),)))
        assert len(result.culprits) == culprits
        assert result.tests[0].fault is (FaultClass.NONE if culprits else FaultClass.CONFIGURATION)
        assert culprits or "GPUs are wrong at once" in result.why
