"""Hours of evidence in the space of minutes: the verdict and the work stay what they were."""

from collections import Counter
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from burnin.spec import Case, Verdict
from burnin.verdict.condense import KEPT, condense
from burnin.verdict.evidence import Cast, Evidence
from burnin.verdict.judge import judge
from tests.burnin.judge_evidence import BAD, EXACT, FLOAT, GOOD, WORSE, evidence, proof, retested, votes


def work(told: Evidence) -> Counter[tuple[str, str, str]]:
    total: Counter[tuple[str, str, str]] = Counter()
    for cast in told.casts:
        total[cast.gpu, cast.test, "launches"] += cast.ballot.launches
        total[cast.gpu, cast.test, "bytes"] += cast.ballot.bytes
    return total


def verdicts(told: Evidence) -> list[object]:
    judgement = judge(told)
    gpus = [(gpu.gpu, gpu.verdict, gpu.fault) for gpu in judgement.gpus]
    return [judgement.verdict, gpus, [(test.test, test.verdict, test.fault) for test in judgement.tests]]


def many(gpus: int, rounds: int, *, test: str, first: int = 1) -> tuple[Cast, ...]:
    return tuple(cast for i in range(first, first + rounds) for cast in votes(gpus, {}, test=test, iteration=i, seed=i))


def test_rounds_in_which_all_agreed_become_one_with_the_work_of_all() -> None:
    told = evidence(4, casts=many(4, 500, test=EXACT) + many(4, 500, test=FLOAT), proofs=(proof(1, GOOD),))
    small = condense(told)
    assert len(small.casts) == 4 * 3  # the round with a golden is apart from those without
    assert work(small) == work(told)
    assert verdicts(small) == verdicts(told)
    assert verdicts(small)[0] is Verdict.PASS
    assert condense(small) == small


def test_adding_up_step_by_step_gives_the_same() -> None:
    casts = many(3, 40, test=FLOAT)
    at_once = condense(evidence(3, casts=casts))
    bit_by_bit = evidence(3)
    for start in range(0, len(casts), 3):
        bit_by_bit = condense(bit_by_bit.plus(casts=casts[start : start + 3]))
    assert bit_by_bit == at_once


def test_a_single_wrong_round_among_thousands_is_kept_with_its_seed_and_tiles() -> None:
    odd = tuple(replace(cast, ballot=replace(cast.ballot, tiles=(1, 2))) for cast in votes(4, {2: BAD}, seed=777))
    told = evidence(4, casts=many(4, 300, test=EXACT) + odd + many(4, 300, test=EXACT, first=1000) + retested(4, {}))
    small = condense(told)
    assert [cast for cast in small.casts if cast.ballot.seed == 777] == list(odd)
    assert verdicts(small) == verdicts(told)
    assert judge(small).culprits[0].strikes == 1


def test_a_gpu_that_is_always_wrong_does_not_fill_the_memory() -> None:
    wrong = tuple(c for i in range(1, 400) for c in votes(4, {2: f"{i:016x}"}, iteration=i, seed=i))
    small = condense(evidence(4, casts=wrong + retested(4, {2: BAD})))
    assert len(small.casts) <= 4 * (2 * KEPT)
    assert verdicts(small) == verdicts(evidence(4, casts=wrong + retested(4, {2: BAD})))


def test_what_other_hosts_compute_too_and_what_measured_more_stay_apart() -> None:
    measured = tuple(
        replace(cast, ballot=replace(cast.ballot, facts=(("pulses", 1.0),)))
        for cast in votes(2, {}, iteration=9, seed=9)
    )
    told = evidence(2, casts=many(2, 5, test=FLOAT) + votes(2, {}, test=FLOAT, iteration=7, seed=77) + measured)
    small = condense(told, apart={77})
    assert [cast.ballot.seed for cast in small.casts] == [1, 1, 77, 77, 9, 9]


def test_the_best_rate_of_each_gpu_stays_what_it_was() -> None:
    case = Case(test="rate", name="c", dtype="bf16", exact=False, rate_name="r", slow_below=0.9)
    base = replace(evidence(3), cases={("rate", "c"): case})
    seconds = {0: [5.0, 1.0, 5.0, 5.0, 5.0], 1: [5.0, 5.0, 5.0, 2.0, 5.0], 2: [3.0, 3.0, 3.0, 3.0, 3.0]}
    casts = tuple(
        replace(cast, ballot=replace(cast.ballot, elapsed_s=seconds[gpu][i]))
        for i in range(5)
        for gpu, cast in enumerate(votes(3, {}, test="rate", iteration=i, seed=i))
    )

    def best(told: Evidence) -> dict[str, float]:
        gpus = {cast.gpu for cast in told.casts}
        return {gpu: min(c.ballot.elapsed_s / c.ballot.flops for c in told.casts if c.gpu == gpu) for gpu in gpus}

    whole = base.plus(casts=casts)
    small = condense(whole)
    assert best(small) == best(whole)
    assert work(small) == work(whole)
    assert len(small.casts) == 3 * 4
    assert condense(small) == small


def test_transfers_that_differed_within_their_bound_are_still_told() -> None:
    case = Case(test="collective.repro", name="c", dtype="bf16", exact=True, rate_name="r")
    base = replace(evidence(2), cases={("collective.repro", "c"): case})
    casts = []
    for i, distinct in enumerate((1, 1, 3, 1)):
        casts += [
            replace(c, ballot=replace(c.ballot, trace=(("distinct", str(distinct)),)))
            for c in votes(2, dict.fromkeys(range(2), f"{0:016x}"), test="collective.repro", iteration=i, seed=i)
        ]
    told = base.plus(casts=tuple(casts))
    assert verdicts(condense(told)) == verdicts(told)
    assert len(condense(told).casts) == 4


RESULTS = st.sampled_from([GOOD, GOOD, GOOD, GOOD, BAD, WORSE])


@st.composite
def evidences(draw: st.DrawFn) -> Evidence:
    gpus = draw(st.integers(1, 5))
    casts: tuple[Cast, ...] = ()
    proofs = []
    for i in range(draw(st.integers(1, 8))):
        test = draw(st.sampled_from([EXACT, FLOAT]))
        quiet = draw(st.booleans())
        results = {} if quiet else {gpu: draw(RESULTS) for gpu in range(gpus)}
        mixed = {gpu: ((GOOD, 3), (BAD, 1)) for gpu in results if draw(st.integers(0, 6)) == 0}
        casts += votes(gpus, {**results, **mixed}, test=test, iteration=i, seed=i)
        if test == EXACT and draw(st.booleans()):
            proofs.append(proof(draw(st.integers(0, gpus - 1)), draw(st.sampled_from([GOOD, GOOD, BAD, None])), seed=i))
        if results and draw(st.booleans()):
            casts += retested(gpus, {**results, **mixed} if draw(st.booleans()) else {}, test=test)[: gpus * 4]
    keys = draw(st.sampled_from(["k" * gpus, ("kj" * gpus)[:gpus]]))
    unique = {(c.gpu, c.test, c.ballot.iteration, c.ballot.seed, c.retest): c for c in casts}
    return evidence(gpus, keys=keys, casts=tuple(unique.values()), proofs=tuple(proofs))


@settings(max_examples=300, deadline=None)
@given(evidences())
def test_the_verdict_is_that_of_the_whole_evidence(told: Evidence) -> None:
    small = condense(told)
    assert verdicts(small) == verdicts(told)
    assert work(small) == work(told)
    assert condense(small) == small
