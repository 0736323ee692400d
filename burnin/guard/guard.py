"""`ReplayGuard`: what a training loop calls."""

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from burnin.guard.anomaly import Watch
from burnin.guard.asked import Ask
from burnin.guard.calibrate import Calibration, withdraw
from burnin.guard.check import Checker
from burnin.guard.config import GuardConfig
from burnin.guard.first import first
from burnin.guard.hashes import Hasher, Pending
from burnin.guard.judge import Verdict
from burnin.guard.late import LateLoss
from burnin.guard.learn import Learner
from burnin.guard.ranks import Alone, Gang, GoneError, Ranks, gpu_names
from burnin.guard.replay import REPLAY_ERRORS, Replayer, StepFunction
from burnin.guard.report import Ledger, as_dict, as_text
from burnin.guard.seen import Check
from burnin.guard.shapes import Shape, shape_of
from burnin.guard.tell import tell_agent
from burnin.guard.touch import Touch
from burnin.keys import derive
from burnin.spec import FaultClass, GuardFinding

_log = logging.getLogger("burnin.guard")
LISTENING = 10
"""With several ranks, anomalies are exchanged so many times between two scheduled checks."""


class ReplayGuard:
    """Checks training steps; every rank has one, made at the same place of the program.

    `loss = guard.step(fn, batch)` in place of `loss = fn(batch)`, before `optimizer.step()`. `fn` runs forward and
    backward and returns the loss; it must not step the optimizer, and what it depends on must be its model, its
    micro-batch and torch's random numbers.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        config: GuardConfig | None = None,
        every: int | None = None,
        comm_hook: Any = None,
        tell: Callable[[GuardFinding], None] | None = None,
        monotonic: Callable[[], float] = time.monotonic,  # noqa: TID251 - a library in somebody else's program
    ) -> None:
        """Look at the model; nothing is run.

        Args:
            model: as the step calls it: plain, DDP or FSDP2 (`fully_shard`).
            optimizer: of its parameters.
            config: see `GuardConfig`.
            every: overrides `config.every`.
            comm_hook: (state, hook) to run inside the guard's own DDP communication hook.
            tell: called with each finding on the rank that reports it; besides, the agent on this host is told.
            monotonic: for deadlines, seconds.

        Raises:
            ValueError: the configuration cannot work.
        """
        config = config or GuardConfig()
        self.config = config if every is None else replace(config, every=every)
        self._tell = tell
        self._hasher = Hasher(monotonic=monotonic, deadline_s=self.config.deadline_s)
        shape = shape_of(model, self._hasher, comm_hook=comm_hook)
        self._replayer = Replayer(model, optimizer, shape, self._hasher)
        self._checker = Checker(self._replayer, _ranks(shape, deadline_s=self.config.deadline_s), self._hasher)
        self._learner = Learner()
        self.ledger = Ledger(notes=[shape.quiet_note] if shape.quiet_note else [])
        if shape.part:
            self._checker.severed = True
            shape.sever()
            self.ledger.notes.append("ranks are not compared: DDP's process group is not that of all ranks")
        self._gpus = gpu_names(self._checker.ranks, self._replayer.device)
        self._watches = {name: Watch(name) for name in ("loss", "gradient norm")}
        self._late_loss = LateLoss()
        self._odd = ""
        self._armed = ""
        self._checks = 0
        self._off = ""
        self._standing: tuple[int, Pending, Touch] | None = None
        """The step that begins with this state, the state after the update before it, and who touched it since."""
        self._steady_state = True
        if hasattr(optimizer, "register_step_post_hook"):
            optimizer.register_step_post_hook(self._updated)

    @property
    def last_verified_step(self) -> int | None:
        """The last step that was checked and found right, counted from 1; what is saved after it is unverified."""
        return self.ledger.last_verified_step

    def step(self, fn: StepFunction, batch: Any) -> Any:
        """Run one step, and check it if it is time to. Returns the loss; raises what `fn` raises in its first run."""
        self.ledger.steps += 1
        number = self.ledger.steps
        if not self._due(number):
            loss = fn(batch)
        elif self.ledger.calibration is None:
            loss = self._calibrate(fn, batch, number)
        else:
            loss = self._check(fn, batch, number)
        if self.config.anomalies:
            self._look(loss)
        return loss

    def wrap(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Return the callback form: a guarded function with the arguments of `fn`, for loops that call a training step.

        For example `trainer.training_step = guard.wrap(trainer.training_step)`. Every tensor among the arguments is
        part of the micro-batch.
        """

        def guarded(*args: Any, **kwargs: Any) -> Any:
            return self.step(lambda given: fn(*given[0], **given[1]), (args, kwargs))

        return guarded

    def saw_gradient_norm(self, norm: float) -> None:
        """Say what gradient norm the program computed anyway (to clip it): a jump makes a step soon a checked one."""
        if self.config.anomalies:
            self._odd = self._odd or self._watches["gradient norm"].see(norm)

    def probability_seen(self, rate: float) -> float:
        """See `burnin.guard.report.Ledger.probability_seen`."""
        return self.ledger.probability_seen(rate)

    def report(self) -> dict[str, Any]:
        """Return what was checked, what was not, and what was found."""
        return as_dict(
            self.ledger,
            shape=self._replayer.shape.name,
            ranks=self._checker.ranks.world,
            every=self.config.every,
            steady=self.config.steady,
        )

    def report_text(self) -> str:
        """Return the same for people."""
        return as_text(self.report())

    def _due(self, number: int) -> bool:
        if self._off:
            return False
        if self.ledger.calibration is None:
            return number >= self.config.calibrate_at
        listening = max(1, self.config.every // LISTENING)
        world = self._checker.ranks.world
        if self._odd and (world == 1 or number % listening == 0):
            self._armed, self._odd = self._odd, ""
        if world > 1 and self.config.anomalies and number % listening == 0:
            self._armed = self._exchange(self._armed)
        return number % self.config.every == 0 or bool(self._armed)

    def _exchange(self, armed: str) -> str:
        try:
            odd = [rank for rank, (one,) in enumerate(self._checker.ranks.gather([int(bool(armed))])) if one]
        except GoneError as error:
            self._lost(str(error))
            return ""
        return armed or (f"rank {odd[0]} saw an anomaly" if odd else "")

    def _look(self, loss: Any) -> None:
        value = self._late_loss.take(loss)
        if value is not None:
            self._odd = self._odd or self._watches["loss"].see(value)

    def _calibrate(self, fn: StepFunction, batch: Any, number: int) -> Any:
        found = first(
            self._replayer, self._checker, self._hasher, fn, batch,
            seed=self._seed(number), expected=self._expected(number), config=self.config,
        )  # fmt: skip
        self._steady_state = found.steady
        self._off = found.off
        self.ledger.notes += found.notes
        if found.again:
            self.ledger.skip(found.again)
        if found.gone:
            self._lost(found.gone)
        if found.calibration is not None:
            self._claim(found.calibration)
            for rank in found.calibration.odd_ranks:
                why = "this rank does not reproduce what most others do (calibration)"
                self._report(_suspect(rank, why), number, ())
        return found.loss

    def _claim(self, calibration: Calibration) -> None:
        """Compare from now on what is reproducible, and only that."""
        self.ledger.calibration = calibration
        self._checker.names, self._checker.unsound = calibration.names, calibration.unsound

    def _check(self, fn: StepFunction, batch: Any, number: int) -> Any:
        self._checks += 1
        self._armed = ""
        world = self._checker.ranks.world
        turn, rest = divmod(self._checks, self.config.peer_every)
        ask = Ask(
            seed=self._seed(number),
            peers=world > 1 and not rest,
            exact=not rest,
            by=1 if world == 1 else 1 + turn % (world - 1),
            standing=self._untouched(number) if self._steady_state else None,
        )
        self._standing = None
        outcome = self._checker.check(fn, batch, ask)
        self.ledger.add(outcome, number)
        if outcome.gone:
            self._lost(outcome.gone)
        if outcome.verdict is not None and outcome.verdict.check is not Check.OK:
            self._take(outcome.verdict, outcome.tensors, number)
        return outcome.loss

    def _take(self, verdict: Verdict, tensors: tuple[str, ...], number: int) -> None:
        """Report a verdict, and stop comparing what has turned out to be less reproducible than it seemed."""
        calibration = self.ledger.calibration
        if calibration is None:
            return
        verdict, unlike = self._learner.learn(verdict, calibration.in_order(tensors))
        self._report(verdict, number, tensors)
        if unlike:
            left, gone = withdraw(calibration, unlike)
            self._claim(left)
            self.ledger.notes.append(
                f"step {number}: {len(gone)} tensors no longer checked, not reproducible or computed after what is not"
                f" ({', '.join(gone[:3])}{' …' if len(gone) > 3 else ''})"  # noqa: PLR2004
            )

    def _report(self, verdict: Verdict, number: int, tensors: tuple[str, ...]) -> None:
        gpu = None if verdict.rank is None else self._gpus[verdict.rank]
        where = f" ({', '.join(tensors[:3])}{' …' if len(tensors) > 3 else ''})" if tensors else ""  # noqa: PLR2004
        finding = GuardFinding(
            code=f"sdc.{verdict.fault_class}",
            check=str(verdict.check),
            fault_class=str(verdict.fault_class),
            gpu=gpu,
            rank=verdict.rank,
            step=number,
            why=verdict.why + where,
            asks=verdict.asks,
        )
        self.ledger.findings.append(finding)
        if self._checker.ranks.rank == (verdict.rank or 0):  # its own host's agent is told
            _log.log(logging.INFO if verdict.check is Check.UNKNOWN else logging.WARNING, "%s", finding)
            tell_agent(finding)
            if self._tell is not None:
                self._tell(finding)

    def _updated(self, *_: Any) -> None:
        """After an update: fingerprint what must be the same when the next step begins, if that one is checked."""
        number = self.ledger.steps + 1
        self._standing = None
        near = number == self.config.calibrate_at or (number % self.config.every == 0 and self.ledger.calibration)
        if near and not self._off and self._steady_state:
            try:
                pending = self._replayer.standing(self._seed(number))
                self._standing = number, pending, Touch(self._replayer.at_rest())
            except REPLAY_ERRORS as error:  # out of memory, a device that hangs, state of a kind that has no bytes
                self.ledger.skip(f"state at rest: {error}")

    def _expected(self, number: int) -> Pending | None:
        """What parameters and optimizer state must be before a step; None: there was no update right before it."""
        return self._standing[1] if self._standing is not None and self._standing[0] == number else None

    def _untouched(self, number: int) -> Pending | None:
        """The same, unless the program has written to it since: what it loads, merges or clips is no memory fault."""
        if self._standing is not None and self._standing[2].told_of(self._replayer.at_rest()):
            self.ledger.skip("state at rest: the program changed it between the update and the step")
            return None
        return self._expected(number)

    def _lost(self, why: str) -> None:
        """Another rank is gone: go on alone where a step can be replayed alone."""
        self.ledger.skip(why)
        if self._replayer.shape.joint:
            self._off = f"nothing is checked any more: {why}"
            self.ledger.notes.append(self._off)
        elif self._checker.ranks.world > 1:
            self._gpus = [self._gpus[self._checker.ranks.rank]]
            self._checker.ranks, self._checker.severed = Alone(), True
            self._replayer.shape.sever()
            self.ledger.notes.append("peers and collectives are not checked any more")

    def _seed(self, number: int) -> int:
        return derive(self.config.seed, "guard", number)


def _ranks(shape: Shape, *, deadline_s: float) -> Ranks:
    return Alone() if shape.name == "plain" or shape.part else Gang(deadline_s=deadline_s)


def _suspect(rank: int, why: str) -> Verdict:
    return Verdict(
        check=Check.SUSPECT,
        fault_class=FaultClass.CHIP_TRANSIENT,
        rank=rank,
        why=why,
        row="calibration",
        asks=("gemm.exact", "gemm.vote"),
        redo=False,
    )
