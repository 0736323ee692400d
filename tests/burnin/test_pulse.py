"""`pulse`: the grid of beats, and what only a load that steps again and again finds."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from burnin.inject import Scene, scene
from burnin.processes.children import Answer, Heard
from burnin.processes.senses import BUSY_WATTS, IDLE_WATTS, Simulated
from burnin.processes.wire import Request, Vote
from burnin.session import START_IN_S, Session, Task
from burnin.spec import Ballot, Case, Device, Inject
from burnin.telling.progress import Lines
from burnin.tests import TESTS, Effort
from burnin.workloads import Context, Workload, pulse
from burnin.workloads.beats import Grid, percentile, worst_error
from burnin.workloads.gemm import GemmVote
from burnin.workloads.pulse import HERTZ_CPU, Pulse

RARE = 0.02
"""Of load steps: a supply that dips too far once in fifty."""


class _Senses:
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[float, bool]] = []

    def read(self) -> object: ...
    def power_samples(self) -> tuple[float, ...]:
        return ()

    def passed(self, seconds: float, *, busy: bool) -> None:
        self.told.append((seconds, busy))


def context(inject: Inject | None = None, **more: object) -> Context:
    return Context(backend="sim", device=torch.device("cpu"), inject=inject, alive=lambda: None, **more)  # type: ignore[arg-type]


CASES = Pulse().cases(context())
FASTEST = CASES[-1]


def cast(workload: Workload, case: Case, ctx: Context, *, seed: int = 3, launches: int = 20) -> Ballot:
    with scene(Scene(case=case)):
        return workload.ballot(ctx, case, iteration=0, seed=seed, launches=launches)


@given(st.floats(0.0, 1e6), st.sampled_from([0.5, 1.5, 50.0, 1000.0]), st.integers(-1, 50), st.floats(-10.0, 100.0))
def test_the_next_beat_lies_ahead_and_after_the_last_one(
    start_s: float, hertz: float, beat: int, late_s: float
) -> None:
    grid = Grid(start_s=start_s, period_s=1.0 / hertz)
    now_s = start_s + late_s
    following = grid.following(beat, now_s)
    assert following > beat
    assert grid.moment_s(following) >= now_s - 1e-3 * grid.period_s
    earlier = following - 1
    assert earlier in {beat, -1} or grid.moment_s(earlier) < now_s  # none that could be had is left out


def test_two_gpus_on_one_grid_stay_in_phase_when_one_is_late() -> None:
    grid = Grid(start_s=100.0, period_s=0.02)
    punctual, late = grid.following(-1, 99.9), grid.following(-1, 100.151)
    assert (punctual, late) == (0, 8)
    assert (grid.moment_s(late) - grid.moment_s(punctual)) / grid.period_s == pytest.approx(8)


def test_the_worst_period_counts_missed_beats_as_what_they_are() -> None:
    assert worst_error([0.1, 0.1, 0.1], [0, 1, 2, 3], 0.1) == pytest.approx(0.0)
    assert worst_error([0.1, 0.2], [0, 1, 3], 0.1) == pytest.approx(0.0)
    assert worst_error([0.1, 0.13], [0, 1, 2], 0.1) == pytest.approx(0.3)
    assert worst_error([], [0], 0.1) == 0.0


def test_percentiles_of_a_square_wave_are_its_levels() -> None:
    wave = [80.0] * 45 + [400.0] * 10 + [700.0] * 45
    assert (percentile(wave, 0.1), percentile(wave, 0.9)) == (80.0, 700.0)
    assert percentile([], 0.5) is None


def test_there_is_a_case_for_every_frequency() -> None:
    assert [case.name for case in CASES] == [f"bf16 {hertz:g} Hz" for hertz in HERTZ_CPU]
    assert all(TESTS["pulse"].min_launches <= TESTS["pulse"].efforts[b].launches for b in ("cpu", "sim", "cuda"))
    # It draws the power of a whole host in phase: in qualification and what contains it, never before a job.
    assert TESTS["pulse"].levels == {"qualify", "burnin", "soak"}
    assert TESTS["pulse"].needs.startswith("a grant of power")


def test_a_healthy_gpu_gives_one_result_in_every_pulse_and_records_what_it_did() -> None:
    one, again = cast(Pulse(), FASTEST, context()), cast(Pulse(), FASTEST, context())
    assert one.fingerprints == again.fingerprints
    assert (len(one.fingerprints), one.launches, one.fired) == (1, 20, 0)
    assert one.fingerprints != cast(Pulse(), FASTEST, context(), seed=4).fingerprints
    facts = dict(one.facts)
    assert (facts["frequency_hertz"], facts["pulses"]) == (1000.0, 20.0)
    assert facts["products_per_pulse"] >= 2
    assert facts["product_seconds"] > 0
    assert facts["period_error_max_ratio"] >= 0
    assert "power_low_watts" not in facts  # nothing there to read it with


def test_low_and_high_watts_are_read_where_they_can_be() -> None:
    facts = dict(cast(Pulse(), FASTEST, context(senses=Simulated())).facts)
    assert (facts["power_low_watts"], facts["power_high_watts"]) == (IDLE_WATTS, BUSY_WATTS)


def test_low_and_high_phases_take_turns() -> None:
    senses = _Senses()
    cast(Pulse(), FASTEST, context(senses=senses), launches=5)
    assert senses.told == [(0.0005, False), (0.0005, True)] * 5


@pytest.mark.parametrize("seed", range(3))
def test_a_fault_of_one_load_step_in_fifty_is_found_by_steps_and_not_by_steady_load(seed: int) -> None:
    """As many results are checked either way; a steady load has one step in each ballot."""
    rare = Inject(gpu=0, fault="F08", rate=RARE, seed=seed)
    steady = GemmVote()
    case = next(case for case in steady.cases(context()) if case.dtype == "bf16")
    assert cast(steady, case, context(rare), launches=200).fired == 0
    stepped = cast(Pulse(), FASTEST, context(rare), launches=100)
    assert stepped.fired > 0
    assert len(stepped.fingerprints) > 1  # the GPU disagrees with itself, whoever else there is


def test_a_persistent_fault_is_seen_by_the_vote() -> None:
    bad = cast(Pulse(), FASTEST, context(Inject(gpu=0, fault="F03", rate=1.0, seed=1)), launches=4)
    assert (bad.fired, len(bad.fingerprints)) == (4, 1)
    assert bad.fingerprints != cast(Pulse(), FASTEST, context(), launches=4).fingerprints


def test_pulses_that_compute_nothing_are_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulse, "multiplier", lambda *_: lambda _out: None)
    with pytest.raises(RuntimeError, match="nothing was computed"):
        cast(Pulse(), FASTEST, context(), launches=4)


def test_it_has_no_golden() -> None:
    with pytest.raises(ValueError, match="no golden"):
        Pulse().prove(context(), FASTEST, seed=1)
    with pytest.raises(ValueError, match="no case"):
        cast(Pulse(), replace(FASTEST, name="bf16 7 Hz"), context())


class _Crew:
    """Answers at once, and remembers what was asked together."""

    living = ("g0", "g1", "g2")

    def __init__(self) -> None:
        self.asked: list[list[Vote]] = []

    def ask(
        self, asks: Mapping[str, Sequence[Request]], *, test: str, quiet_s: float, limit_s: float, heard: Heard
    ) -> None:
        del test, quiet_s, limit_s
        votes = [(gpu, one) for gpu, requests in asks.items() for one in requests if isinstance(one, Vote)]
        self.asked.append([vote for _, vote in votes])
        for gpu, vote in votes:
            answer: Answer = {"ballot": _ballot(vote)}
            heard(gpu, answer)


def _ballot(vote: Vote) -> dict[str, object]:
    return {
        "case": vote.case, "iteration": vote.iteration, "seed": vote.seed, "fingerprints": [["1" * 16, vote.launches]],
        "launches": vote.launches, "bytes": 1, "flops": 0, "elapsed_s": 1.0, "trace": [], "tiles": [],
    }  # fmt: skip


class _Silent:
    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None: ...


@pytest.mark.parametrize("in_step", [True, False])
def test_a_test_in_step_begins_each_case_on_all_gpus_at_one_moment(*, in_step: bool) -> None:
    crew, now_s = _Crew(), [50.0]

    def monotonic() -> float:
        now_s[0] += 1.0
        return now_s[0]

    devices = tuple(
        Device(gpu=gpu, index=i, sku="s", sm_count=1, memory_bytes=1, vote_key="k") for i, gpu in enumerate(crew.living)
    )
    progress = Lines(_Silent(), monotonic=monotonic)  # type: ignore[arg-type]  # it only needs these two
    task = Task(
        test="pulse", declaration=replace(TESTS["pulse"], in_step=in_step), cases=CASES,
        effort=Effort(launches=2, rounds=1), inject={}, seed=1,
    )  # fmt: skip
    Session(crew, devices, monotonic=monotonic, progress=progress).carry_out(task)
    starts = [{vote.start_s for vote in asked} for asked in crew.asked]
    if not in_step:
        assert starts == [{None}]
        return
    assert [len(asked) for asked in crew.asked] == [3] * len(CASES)
    assert all(len(one) == 1 for one in starts)
    moments = [one.pop() for one in starts]
    assert None not in moments
    assert moments == sorted(set(moments))  # type: ignore[type-var]  # floats, as the line above says
    assert moments[0] is not None
    assert moments[0] % 1 == START_IN_S
