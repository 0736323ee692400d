"""Real processes joined by gloo: what they answer, how a gang ends when one breaks, that none is left behind."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from burnin.collectives.gang import Gang, causes
from burnin.processes.children import Answer, Children
from burnin.processes.wire import Prove, Vote
from burnin.spec import Device, Inject
from burnin.stop import Stop, StoppedError
from burnin.verdict.deaths import unresponsive
from burnin.verdict.evidence import Death, DeathKind, Evidence
from burnin.verdict.links import CLEAN

GPUS = ("A", "B", "C")
CASES = ("all-reduce bf16 16KiB gloo", "reduce-scatter int32 16KiB gloo", "all-gather fp16 16KiB gloo",
         "all-to-all fp32 16KiB gloo", "broadcast bf16 16KiB gloo")  # fmt: skip
Heard = list[tuple[str, Answer]]
SHORT_S = 5.0
"""For a transfer that never ends; three processes must be able to join in it on a machine that is busy with others."""


class Harness:
    """A gang of three on the CPU."""

    def __init__(self, children: Children, stop: Stop, *, deadline_s: float) -> None:
        self.children = children
        self.notes: list[str] = []
        setups = {gpu: {"backend": "cpu", "gpu": gpu, "threads": 1} for gpu in GPUS}
        for gpu, setup in setups.items():
            children.start(gpu, setup)
        self.gang = Gang(
            children, setups, monotonic=time.monotonic, stop=stop, note=self.notes.append, deadline_s=deadline_s
        )

    def vote(self, workload: str, cases: tuple[str, ...], *, faults: str = "", gpus: str = "B") -> Heard:
        heard: Heard = []
        asks = {}
        for number, gpu in enumerate(GPUS):
            planted = Inject(gpu=number, fault=faults, rate=1.0, seed=1) if faults and gpu in gpus else None
            test = "copy" if workload.endswith("Copy") else "collective.exact"
            asks[gpu] = [
                Vote(test=test, workload=workload, case=case, iteration=0, seed=9, launches=3, inject=planted)
                for case in cases
            ]
        self.gang.ask(asks, test="t", quiet_s=200.0, limit_s=250.0, heard=lambda gpu, one: heard.append((gpu, one)))
        return heard


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Harness]]:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    stop = Stop()
    with Children(monotonic=time.monotonic, stop=stop) as children:
        yield lambda deadline_s=200.0, asked=False: _asked(Harness(children, stop, deadline_s=deadline_s), stop, asked)


def _asked(made: Harness, stop: Stop, asked: bool) -> Harness:
    stop.asked = asked
    return made


def test_collectives_between_processes_are_right_and_a_damaged_result_stays_where_it_is(
    harness: Callable[..., Harness],
) -> None:
    made = harness()
    heard = made.vote("burnin.collectives.reduce:CollectiveExact", CASES, faults="F18")
    assert made.children.deaths == []
    assert len(heard) == len(GPUS) * len(CASES)
    for gpu, answer in heard:
        right = [[f"{CLEAN:016x}", 3]]
        assert (answer["ballot"]["fingerprints"] == right) is (gpu != "B")
        assert answer["ballot"]["fired"] == (3 if gpu == "B" else 0)
    moved = next(
        a["ballot"]["trace"] for gpu, a in heard if gpu == "B" and a["ballot"]["case"].startswith("all-to-all")
    )
    assert moved[0][0] in {"from +1", "from +2", "result"}


def test_copies_between_processes_are_right_alone_and_at_once(harness: Callable[..., Harness]) -> None:
    made = harness()
    heard = made.vote("burnin.collectives.copies:Copy", ("host pinned", "pairs alone", "pairs at once"))
    assert [answer["ballot"]["fingerprints"] for _, answer in heard] == [[[f"{CLEAN:016x}", 3]]] * 9
    assert all(answer["ballot"]["elapsed_s"] > 0 for _, answer in heard)


def test_a_rank_that_dies_is_the_cause_and_the_waiting_are_not(harness: Callable[..., Harness]) -> None:
    for fault, why in (("F01", "killed by signal 9"), ("F04", "ArithmeticError: a GPU that")):
        made = harness(deadline_s=200.0)
        begun_s = time.monotonic()
        assert made.vote("fake_collectives:Broken", CASES[:1], faults=fault) == []
        assert time.monotonic() - begun_s < 100
        deaths = made.children.deaths
        assert {(death.gpu, death.kind) for death in deaths} == {("B", DeathKind.CRASH)}
        assert len(deaths) == 2  # tried once more
        assert all(death.why.startswith(why) for death in deaths)
        assert made.gang.living == ()
        for gpu in GPUS:
            made.children.end(gpu)
        deaths.clear()


def evidence(deaths: list[Death]) -> Evidence:
    devices = tuple(
        Device(gpu=g, index=n, sku="s", sm_count=1, memory_bytes=1, vote_key="k") for n, g in enumerate(GPUS)
    )
    return Evidence(devices=devices, cases={}, quotas={}, deaths=tuple(deaths))


def test_a_rank_that_stays_away_is_unresponsive(harness: Callable[..., Harness]) -> None:
    made = harness(deadline_s=SHORT_S)
    assert made.vote("fake_collectives:Broken", CASES[:1], faults="F02") == []
    assert [(death.gpu, death.kind) for death in made.children.deaths] == [("B", DeathKind.HANG)] * 2
    assert set(unresponsive(evidence(made.children.deaths))) == {"B"}


def test_a_transfer_in_which_all_hang_ends_and_blames_nobody(harness: Callable[..., Harness]) -> None:
    made = harness(deadline_s=SHORT_S)
    assert made.vote("fake_collectives:Broken", CASES[:1], faults="F03", gpus="ABC") == []
    assert {death.kind for death in made.children.deaths} == {DeathKind.HANG}
    assert {death.gpu for death in made.children.deaths} == set(GPUS)
    assert unresponsive(evidence(made.children.deaths)) == {}


def test_what_the_library_does_not_support_is_skipped_with_the_reason(harness: Callable[..., Harness]) -> None:
    made = harness()
    assert made.vote("fake_collectives:Broken", CASES[:1], faults="F05", gpus="ABC") == []
    assert made.notes == ["gloo: 3 ballots skipped, the library does not support it: invalid usage: no tree here"]
    assert (made.children.deaths, made.gang.living) == ([], GPUS)


def test_what_is_no_vote_goes_to_the_processes_that_are_there(harness: Callable[..., Harness]) -> None:
    made, heard = harness(), Heard()
    prove = Prove(test="copy", workload="burnin.collectives.copies:Copy", case="host pinned", seed=1)
    made.gang.ask({"A": [prove]}, test="t", quiet_s=200.0, limit_s=250.0, heard=lambda gpu, a: heard.append((gpu, a)))
    assert [(gpu, answer["proof"]["fingerprint"]) for gpu, answer in heard] == [("A", f"{CLEAN:016x}")]


def test_a_stop_that_was_asked_for_starts_nothing(harness: Callable[..., Harness]) -> None:
    made = harness(asked=True)
    with pytest.raises(StoppedError):
        made.vote("burnin.collectives.reduce:CollectiveExact", CASES[:1])


def death(gpu: str, kind: DeathKind) -> Death:
    return Death(gpu=gpu, test="t", kind=kind, why=f"{gpu} {kind}")


def test_causes() -> None:
    crash, hang, lost = DeathKind.CRASH, DeathKind.HANG, DeathKind.LOST
    level = {"A": 4, "B": 4, "C": 4}
    assert causes((), level) == ()
    assert causes((death("A", lost), death("B", crash), death("C", hang)), level) == (death("B", crash),)
    behind = causes((death("A", hang), death("C", hang)), {"A": 4, "B": 3, "C": 4})
    assert [(one.gpu, one.kind, one.why) for one in behind] == [("B", hang, "kept the others waiting")]
    assert [one.gpu for one in causes((death("A", hang),), level)] == ["A", "B", "C"]


def family(session: int) -> set[int]:
    """Processes of a session that have not ended."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            found.add(int(path.parent.name))
    return found


def test_sigterm_ends_a_run_within_a_collective_and_leaves_no_process(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "burnin", "run", "--backend", "cpu", "--gpus", "3", "--test", "collective.exact"]
    process = subprocess.Popen(
        [*command, "--json", str(tmp_path / "report.json")], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stderr is not None
    for line in process.stderr:
        if '"test": "collective.exact"' in line:
            break
    deadline = time.monotonic() + 60
    while len(family(process.pid)) < 9 and time.monotonic() < deadline:  # run, two servers, three GPUs, three ranks
        select.select((), (), (), 0.02)
    begun_s = time.monotonic()
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait(timeout=100) == 3  # within two seconds, where no other test is computing
    process.stderr.close()
    assert json.loads((tmp_path / "report.json").read_text())["verdict"] == "not_judged"
    while family(process.pid) and time.monotonic() < begun_s + 60:
        select.select((), (), (), 0.02)
    assert family(process.pid) == set()
