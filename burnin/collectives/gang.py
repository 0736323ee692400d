"""The processes of tests over links: one a GPU, joined, with deadlines; they succeed or fail together. Torch-free.

A crew for a session (`burnin.session.Crew`). Votes over links go to a gang that is started for the job and ended with
it; everything else goes to the processes of the GPUs that the run has anyway. A gang that breaks is started once more;
one that breaks twice has answered nothing, and the deaths say whose fault it was, if that can be told.
"""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from burnin.collectives.algorithms import ALGORITHMS, LOOPBACK, algorithm_of
from burnin.processes.children import ATTEMPTS, Answer, Children, Heard
from burnin.processes.wire import Request, Vote
from burnin.stop import Stop
from burnin.verdict.evidence import Death, DeathKind

DEADLINE_S = 20.0
"""For one transfer, and for all processes to come together: a healthy host takes milliseconds, and a few seconds to
start eight GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limits:
    """What `ask` was told."""

    test: str
    quiet_s: float
    limit_s: float


class Gang:
    """See the module."""

    def __init__(
        self,
        children: Children,
        setups: Mapping[str, Mapping[str, Any]],
        *,
        monotonic: Callable[[], float],
        stop: Stop,
        note: Callable[[str], None],
        deadline_s: float = DEADLINE_S,
    ) -> None:
        """Nothing is started yet.

        Args:
            children: the processes that the run has; deaths in a gang are recorded there as well.
            setups: GPU → how to start its process, in the order of ranks.
            monotonic: clock in seconds.
            stop: ends a job at once.
            note: hears what was skipped and why.
            deadline_s: for one transfer.
        """
        self._children = children
        self._setups = setups
        self._monotonic = monotonic
        self._stop = stop
        self._note = note
        self._deadline_s = deadline_s
        self._broken = False

    @property
    def living(self) -> tuple[str, ...]:
        """All GPUs, or none: a collective takes all of them."""
        whole = set(self._setups) <= set(self._children.living)
        return tuple(self._setups) if whole and not self._broken else ()

    def ask(
        self, asks: Mapping[str, Sequence[Request]], *, test: str, quiet_s: float, limit_s: float, heard: Heard
    ) -> None:
        """Have the requests answered; see `burnin.processes.children.Children.ask`. Raises StoppedError."""
        limits = _Limits(test=test, quiet_s=quiet_s, limit_s=limit_s)
        votes = {gpu: [one for one in requests if isinstance(one, Vote)] for gpu, requests in asks.items()}
        rest = {gpu: [one for one in requests if not isinstance(one, Vote)] for gpu, requests in asks.items()}
        if any(rest.values()):
            self._children.ask(rest, test=test, quiet_s=quiet_s, limit_s=limit_s, heard=heard)
        backend = next(iter(self._setups.values()))["backend"]
        jobs = dict.fromkeys(algorithm_of(vote.case, backend) for several in votes.values() for vote in several)
        for job in jobs:
            part = {
                gpu: [vote for vote in several if algorithm_of(vote.case, backend) == job]
                for gpu, several in votes.items()
            }
            if self.living:
                self._job(job, part, heard, env={**LOOPBACK, **ALGORITHMS[backend][job].env}, limits=limits)

    def _job(
        self,
        job: str,
        asks: Mapping[str, Sequence[Request]],
        heard: Heard,
        *,
        env: Mapping[str, str],
        limits: _Limits,
    ) -> None:
        """Start a gang, ask, end it; once more if it breaks. Answers count only when all of them came."""
        owed = sum(map(len, asks.values()))
        for _ in range(ATTEMPTS):
            answers: list[tuple[str, Answer]] = []
            with (
                tempfile.TemporaryDirectory(prefix="burnin-") as folder,
                Children(monotonic=self._monotonic, stop=self._stop, together=True) as gang,
            ):
                for rank, (gpu, setup) in enumerate(self._setups.items()):
                    gang.start(gpu, {**setup, "gang": self._gang(rank, env, Path(folder) / "store")})
                if not gang.deaths:
                    gang.ask(
                        asks,
                        test=limits.test,
                        quiet_s=limits.quiet_s,
                        limit_s=limits.limit_s,
                        heard=lambda gpu, answer, answers=answers: answers.append((gpu, answer)),  # type: ignore[misc]
                    )
                deaths = causes(tuple(gang.deaths), gang.reached)
            if len(answers) == owed and not deaths:
                self._tell(job, answers, heard)
                return
            self._children.deaths += deaths
        self._broken = True

    def _gang(self, rank: int, env: Mapping[str, str], store: Path) -> dict[str, Any]:
        """What one process needs to join."""
        ordinals = [setup.get("ordinal", 0) for setup in self._setups.values()]
        return {
            "rank": rank,
            "world": len(self._setups),
            "store": str(store),
            "ordinals": ordinals,
            "env": dict(env),
            "deadline_s": self._deadline_s,
        }

    def _tell(self, job: str, answers: Sequence[tuple[str, Answer]], heard: Heard) -> None:
        """Hand the answers over; what the library does not support is skipped with the reason."""
        refused = [str(answer["unsupported"]) for _, answer in answers if "unsupported" in answer]
        if refused:
            self._note(f"{job}: {len(refused)} ballots skipped, the library does not support it: {refused[0]}")
        for gpu, answer in answers:
            if "unsupported" not in answer:
                heard(gpu, answer)


def causes(deaths: tuple[Death, ...], reached: Mapping[str, int]) -> tuple[Death, ...]:
    """Why a gang broke: which deaths say something about a GPU, and which are only what follows from them.

    A crash is a cause, and whoever was waiting is not. Without one, those who are behind keep the others waiting; when
    nobody is behind, all of them hang in the same transfer, and `burnin.verdict.deaths` blames none.

    Args:
        deaths: of one gang, in any order.
        reached: GPU → ballots that its process had begun.
    """
    crashed = tuple(death for death in deaths if death.kind is DeathKind.CRASH)
    if crashed or not deaths:
        return crashed
    first = deaths[0]
    most = max(reached.values())
    behind = [gpu for gpu, count in reached.items() if count < most] or list(reached)
    said = {death.gpu: death.why for death in deaths}
    why = "kept the others waiting" if len(behind) < len(reached) else first.why
    return tuple(Death(gpu=gpu, test=first.test, kind=DeathKind.HANG, why=said.get(gpu, why)) for gpu in behind)
