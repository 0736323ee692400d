"""One checked step: the original, its replays, what peers make of it, and what follows from that.

All ranks walk through the same phases: after each they tell each other how it went, so that none waits for another
that has given up.
"""

from collections.abc import Sequence
from typing import Any

from burnin.guard.asked import Ask, Outcome, Step
from burnin.guard.hashes import Hasher, Pending
from burnin.guard.joint import UncheckedError, exact_products, line_of, together, wrong_pairs
from burnin.guard.judge import CLEAN, Evidence, Row, Verdict, judge
from burnin.guard.ranks import GoneError, Ranks, UnlikeError
from burnin.guard.replay import Print, Replayer, StepFunction
from burnin.guard.seen import Rerun
from burnin.guard.state import Start, gradients, put_gradients
from burnin.spec import FaultClass

SETTLE = 8
"""Replays more before a result that two replays contradict is held against a chip: what races often is seen racing."""


class Checker:
    """Checks steps of one job."""

    def __init__(self, replayer: Replayer, ranks: Ranks, hasher: Hasher) -> None:
        self._replayer = replayer
        self._hasher = hasher
        self.ranks = ranks
        self.names: tuple[str, ...] = ()
        """What is compared: the reproducible fingerprints, the same list on every rank."""
        self.unsound = ""
        """Why these rest on equal replays alone; "": by what they are computed from they can come out one way only."""
        self.severed = False
        """Whether other ranks exist that cannot be asked: then nothing is done that they would have to join."""
        self.post_alike = True
        """Whether all ranks have the same after a collective; not so where tensors are split further, too."""
        self._alone = 0

    def check(self, fn: StepFunction, batch: Any, ask: Ask) -> Outcome:
        """Run and check one step. What `fn` raises in the original run passes; nothing else is raised.

        Following the collectives of a run takes collectives: no rank begins to, unless all do.
        """
        replayer = self._replayer
        if why := replayer.shape.why_not() or self._nothing():
            return Outcome(fn(batch), None, [why])
        try:
            start, standing, before = together(self.ranks, lambda: self._begin(batch, ask), "keeping the step's start")
        except GoneError as error:
            return Outcome(fn(batch), None, gone=str(error))
        except UncheckedError as error:
            return Outcome(fn(batch), None, [str(error)])
        allocated = replayer.allocated()
        loss, records = replayer.run(fn, batch, ask.seed)
        outcome = Outcome(loss, None)
        if records.unknown:
            outcome.unchecked.append(records.unknown)

        def prepare() -> Step:
            replayer.need_repeatable(start, loss)
            after = replayer.inputs(batch, ask.seed)
            expected = standing if ask.standing is None else ask.standing
            original = replayer.prints(loss, records, ask.seed, [standing, expected, before, after])
            decayed, changed = replayer.differ(standing, expected), replayer.differ(before, after)
            replayer.need_room(allocated)
            return Step(fn, batch, start, original, replayer.digests(standing), decayed, changed, ask)

        try:
            self._judge(together(self.ranks, prepare, "the preparation of a replay"), outcome)
        except GoneError as error:
            outcome.gone = str(error)
        except UncheckedError as error:
            outcome.unchecked.append(str(error))
        except RuntimeError as error:  # a device that hangs
            outcome.unchecked.append(line_of(error))
        return outcome

    def _nothing(self) -> str:
        return "" if self.names else "nothing is left that is reproducible: no arithmetic is checked"

    def _begin(self, batch: Any, ask: Ask) -> tuple[Start, Pending, Pending]:
        """What is kept of the state before the step. Nothing is waited for."""
        replayer = self._replayer
        return replayer.start(batch), replayer.standing(ask.seed), replayer.inputs(batch, ask.seed)

    def _judge(self, step: Step, outcome: Outcome) -> None:
        with self._replayer.keep(step.start, step.batch, changed=step.inputs_changed):
            evidence = self._evidence(step, outcome)
        if evidence is None:
            outcome.verdict = CLEAN
            return
        outcome.verdict = judge(evidence)
        outcome.tensors = tuple(self.names[index] for index in outcome.verdict.tensors)
        if outcome.verdict.redo and self.severed:
            outcome.unchecked.append("rolled back: the other ranks would have to join")
        elif outcome.verdict.redo:
            self._redo(step, right_row(evidence, outcome.verdict, self.ranks.rank), outcome)

    def _evidence(self, step: Step, outcome: Outcome) -> Evidence | None:
        """Replay, tell, and on suspicion find out more; None: nothing is suspicious.

        Raises:
            UncheckedError: a replay could not be run, here or on another rank.
            GoneError: a rank is missing.
        """
        replayer, ranks, ask = self._replayer, self.ranks, step.ask
        peers = ranks.world > 1 and (ask.peers or replayer.shape.joint)
        sync = peers and not replayer.shape.views

        def replay(*, whole: bool) -> Print:
            return replayer.replay(step.fn, step.batch, step.start, ask.seed, sync=whole)

        if sync and not replayer.shape.joint:
            # Once without the others: what fails there, fails where nobody waits, and DDP survives no broken backward.
            together(ranks, lambda: replay(whole=False), "the replay")
        first = together(ranks, lambda: replay(whole=sync), "the replay")
        known = self._tell(step, first, sync=sync)
        rows: dict[str, list[Row]] = {"original": [], "first": []}
        if ask.peers and ranks.world > 1:
            rows["peer_first"] = self._peer_runs(step, ask.by, outcome)
        exact = exact_products(ranks, replayer.device, ask.seed) if ask.exact else []
        if not known["suspicious"] and not rows.get("peer_first") and False not in exact:
            return None
        rows["original"] = self._gather_row(self._row(step.original))
        rows["first"] = self._gather_row(self._row(first))
        apart = (rows.get("peer_first") or rows["original"]) != rows["original"]
        if not known["suspicious"] and not apart and False not in exact:
            return None
        return self._suspect(step, known, rows, outcome)

    def _tell(self, step: Step, first: Print, *, sync: bool) -> dict[str, Any]:
        """Exchange what the first replay showed."""
        original, ask = step.original, step.ask
        differs = self._row(first) != self._row(original)
        again = self._replayer.digests(self._replayer.standing(ask.seed)) if differs else step.standing
        replicas = self._replayer.shape.replicas
        moved = sync and (first.post, first.parts) != (original.post, original.parts)
        told = self.ranks.gather(
            [
                int(differs),
                int(step.inputs_changed),
                int(again[0] != step.standing[0]),
                int(step.decayed),
                hash_pair(step.standing) if replicas else 0,
                original.post,
                first.post if sync else original.post,
                original.outside + (first.outside if sync else 0),
                int(moved),
            ]
        )
        columns = list(zip(*told, strict=True))
        post = columns[5] if len(set(columns[5])) > 1 else columns[6]
        if not self.post_alike:
            post = (0,) * self.ranks.world
        return {
            "differs": [bool(one) for one in columns[0]],
            "inputs_changed": [bool(one) for one in columns[1]],
            "memory_changed": [bool(one) for one in columns[2]],
            "decayed": [bool(one) for one in columns[3]],
            "at_rest": list(columns[4]) if replicas else [],
            "post": list(post) if any(post) else [],
            "outside": [bool(one) for one in columns[7]],
            "moved": [bool(one) for one in columns[8]],
            "suspicious": any(any(columns[index]) for index in (0, 3, 7, 8))
            or len(set(columns[4])) > 1
            or len(set(post)) > 1,
        }

    def _suspect(self, step: Step, known: dict[str, Any], rows: dict[str, list[Row]], outcome: Outcome) -> Evidence:
        """Everything else that can be found out."""
        replayer, ranks, ask = self._replayer, self.ranks, step.ask
        explained = any([*known["inputs_changed"], *known["memory_changed"]])
        rows["second"] = self._again(step, rows, settle=0 if explained else SETTLE)
        peers = [(rank + ask.by) % ranks.world for rank in range(ranks.world)]
        if ranks.world > 1:
            rows["peer_first"] = rows.get("peer_first") or self._peer_runs(step, ask.by, outcome)
            rows["peer_second"] = self._peer_runs(step, ask.by, outcome) if rows["peer_first"] else []
        if ranks.world > 2 and rows["peer_first"]:  # noqa: PLR2004 - a third
            rows["third"] = self._peer_runs(step, ask.by % (ranks.world - 1) + 1, outcome)
        flaky = [one != other for one, other in zip(rows["first"], rows["second"], strict=True)]
        self._alone += flaky[ranks.rank] and sum(flaky) == 1
        before = max(0, self._alone - int(flaky[ranks.rank]))
        # The same arithmetic everywhere, and another sum: then it is the collective that differs.
        steady = not any(known["differs"])
        return Evidence(
            world=ranks.world,
            original=rows["original"],
            first=rows["first"],
            second=rows["second"],
            peer_first=rows.get("peer_first", []),
            peer_second=rows.get("peer_second", []),
            third=rows.get("third", []),
            peers=peers,
            inputs_changed=known["inputs_changed"],
            memory_changed=known["memory_changed"],
            decayed=known["decayed"],
            at_rest=known["at_rest"],
            post=known["post"],
            rerun=[
                Rerun.OUTSIDE if out else Rerun.INSIDE if moved and steady else Rerun.NONE
                for out, moved in zip(known["outside"], known["moved"], strict=True)
            ],
            exact=exact_products(ranks, replayer.device, ask.seed),
            alone=[one[0] for one in ranks.gather([before])],
            shared=replayer.shape.joint and not replayer.shape.replicas,
            pairs=self._pairs(known, ask.seed, outcome),
            sound=not self.unsound,
        )

    def _again(self, step: Step, rows: dict[str, list[Row]], *, settle: int) -> list[Row]:
        """Replay again, and so many times more while replays contradict an original; the first unlike R1, else R2."""
        found: list[Row] = []
        for _ in range(1 + settle):
            made = together(
                self.ranks,
                lambda: self._replayer.replay(step.fn, step.batch, step.start, step.ask.seed),
                "the second replay",
            )
            now = self._gather_row(self._row(made))
            found = [
                old if old != first else new for old, first, new in zip(found or now, rows["first"], now, strict=True)
            ]
            shifted = [
                first != original and second == first
                for original, first, second in zip(rows["original"], rows["first"], found, strict=True)
            ]
            if not any(shifted):
                break
        return found

    def _pairs(self, known: dict[str, Any], seed: int, outcome: Outcome) -> list[tuple[int, int]]:
        """Transfers that go wrong, if a collective did."""
        if self.ranks.world == 1 or not (any(known["outside"]) or any(known["moved"]) or len(set(known["post"])) > 1):
            return []
        try:
            return wrong_pairs(self.ranks, self._hasher, self._replayer.device, seed)
        except UncheckedError as error:
            outcome.unchecked.append(str(error))
            return []

    def _peer_runs(self, step: Step, by: int, outcome: Outcome) -> list[Row]:
        """Every rank replays the step of the rank `by` before it; returns the results by the rank whose step it is."""
        if why := self._replayer.shape.no_peers:
            outcome.unchecked.append(why)
            return []
        if len({int(one[0]) for one in self.ranks.gather([int(step.start.accumulated)])} | {0}) > 1:
            outcome.unchecked.append("peers: gradients were accumulated before the step, which only its own rank has")
            return []
        told = self.ranks.gather([int(bool(step.start.not_handed_over)), step.start.rest])
        if len({rest for _, rest in told}) > 1 or any(odd for odd, _ in told):
            why = step.start.not_handed_over or "the micro-batch is not made as on the other ranks"
            outcome.unchecked.append(f"peers: {why}")
            return []
        try:
            buffers = step.start.held_buffers if self._replayer.shape.ships_buffers else []
            other = self.ranks.rotate([*step.start.held_batch, *buffers], step.start.streams, by)
        except UnlikeError as error:
            outcome.unchecked.append(f"peers: {error}")
            return []
        try:
            made = together(self.ranks, lambda: self._peer_run(step, other), "the replay by a peer")
        except UncheckedError as error:
            outcome.unchecked.append(f"peers: {error}")
            return []
        outcome.peers = True
        computed = self._gather_row(made)
        return [computed[(rank + by) % self.ranks.world] for rank in range(self.ranks.world)]

    def _peer_run(self, step: Step, other: Any) -> Row:
        made = self._replayer.replay(step.fn, step.batch, step.start, step.ask.seed, other=other)
        return self._row(made)

    def _redo(self, step: Step, right: Row, outcome: Outcome) -> None:
        """Compute the step again, with everything, in place of the wrong one; keep it if it is right everywhere."""
        replayer = self._replayer
        before = gradients(step.start.leaves)
        try:
            again = together(
                self.ranks,
                lambda: replayer.replay(step.fn, step.batch, step.start, step.ask.seed, sync=True),
                "the repetition",
            )
        except UncheckedError as error:
            outcome.unchecked.append(f"rolled back: {error}")
            put_gradients(step.start.leaves, before)
            return
        told = self.ranks.gather([again.post, int(again.outside == 0 and self._row(again) == right)])
        alike = not self.post_alike or len({post for post, _ in told}) == 1
        outcome.rolled_back = alike and all(good for _, good in told)
        if outcome.rolled_back or replayer.shape.views:
            outcome.loss = again.loss
            return
        put_gradients(step.start.leaves, before)

    def _row(self, run: Print) -> Row:
        return tuple(run.arithmetic.get(name, 0) for name in self.names)

    def _gather_row(self, row: Row) -> list[Row]:
        return [tuple(one) for one in self.ranks.gather(row)]


def right_row(evidence: Evidence, verdict: Verdict, rank: int) -> Row:
    """Return what a rank's step should have come to: what it replays, or its peer does if it is itself to blame."""
    own_word = verdict.fault_class is not FaultClass.CHIP_PERSISTENT or verdict.rank != rank
    return evidence.first[rank] if own_word or not evidence.peer_first else evidence.peer_first[rank]


def hash_pair(pair: Sequence[int]) -> int:
    """One value for two digests."""
    return (pair[0] * 3 + pair[1]) & (1 << 63) - 1
