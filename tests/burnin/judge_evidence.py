"""Evidence as a run would gather it: ballots and proofs of a few GPUs, for the tests of who is blamed."""

from burnin.spec import Ballot, Case, Device, FaultClass, Proof
from burnin.verdict.evidence import Cast, Evidence, Shown
from burnin.verdict.judge import Judgement

EXACT, FLOAT = "gemm.exact", "gemm.vote"
GOOD, BAD, WORSE = "600d600d600d600d", "0bad0bad0bad0bad", "3333333333333333"
Results = dict[int, str | tuple[tuple[str, int], ...]]


def devices(count: int, keys: str = "") -> tuple[Device, ...]:
    return tuple(
        Device(gpu=f"gpu{i}", index=i, sku="s", sm_count=1, memory_bytes=1, vote_key=keys[i] if keys else "k")
        for i in range(count)
    )


def evidence(count: int, *, keys: str = "", **more: object) -> Evidence:
    cases = {
        (test, "c"): Case(test=test, name="c", dtype="fp32", exact=test == EXACT, rate_name="r")
        for test in (EXACT, FLOAT)
    }
    return Evidence(devices=devices(count, keys), cases=cases, quotas={}, **more)  # type: ignore[arg-type]


def votes(
    count: int, results: Results, *, test: str = EXACT, iteration: int = 1, seed: int = 1, retest: bool = False
) -> tuple[Cast, ...]:
    made = []
    for i in range(count):
        result = results.get(i, GOOD)
        fingerprints = ((result, 4),) if isinstance(result, str) else result
        ballot = Ballot(
            case="c",
            iteration=iteration,
            seed=seed,
            fingerprints=fingerprints,
            launches=sum(n for _, n in fingerprints),
            bytes=4096,
            flops=1,
            elapsed_s=1.0,
        )
        made.append(Cast(gpu=f"gpu{i}", test=test, ballot=ballot, retest=retest))
    return tuple(made)


def retested(count: int, results: Results, *, test: str = EXACT, times: int = 10) -> tuple[Cast, ...]:
    return tuple(
        cast
        for again in range(times)
        for cast in votes(count, results, test=test, iteration=again, seed=1 + again // 5 * (100 + again), retest=True)
    )


def proof(gpu: int, fingerprint: str | None, *, seed: int = 1, retest: bool = False) -> Shown:
    return Shown(
        gpu=f"gpu{gpu}",
        test=EXACT,
        proof=Proof(case="c", seed=seed, fingerprint=fingerprint, why="because"),
        retest=retest,
    )


def blamed(judgement: Judgement) -> dict[str, FaultClass]:
    return {gpu.gpu: gpu.fault for gpu in judgement.culprits}
