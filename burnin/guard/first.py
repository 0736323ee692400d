"""The step at which a guard calibrates."""

from dataclasses import dataclass, field
from typing import Any

from burnin.guard.calibrate import Calibration, calibrate
from burnin.guard.check import Checker
from burnin.guard.config import GuardConfig
from burnin.guard.hashes import Hasher, Pending
from burnin.guard.joint import UncheckedError, line_of, together
from burnin.guard.ranks import GoneError
from burnin.guard.replay import REPLAY_ERRORS, Print, Replayer, StepFunction
from burnin.guard.state import CHANGES_ITSELF, Start
from burnin.guard.steady import Steady


@dataclass(slots=True)
class First:
    """What came of it."""

    loss: Any
    calibration: Calibration | None = None
    steady: bool = True
    """Whether parameters and optimizer state are, before the step, what they were after the last update."""
    again: str = ""
    """Why this step cannot be calibrated with, though a later one may be."""
    off: str = ""
    """Why nothing will be checked."""
    gone: str = ""
    """Why other ranks cannot be heard any more."""
    notes: list[str] = field(default_factory=list)


def first(
    replayer: Replayer, checker: Checker, hasher: Hasher, fn: StepFunction, batch: Any, *, seed: int,
    expected: Pending | None, config: GuardConfig,
) -> First:  # fmt: skip
    """Run a step and calibrate with it; what `fn` raises in the original run passes, nothing else is raised.

    Args:
        replayer: runs the step.
        checker: is told what it may compare.
        hasher: makes the fingerprints.
        fn: the step.
        batch: its micro-batch.
        seed: of the fingerprints.
        expected: what parameters and optimizer state were after the last update; None: not known.
        config: of the guard.
    """
    replayer.steady = None
    if why := replayer.shape.why_not():
        return First(fn(batch), again=why)

    def begin() -> tuple[Start, Pending, Pending, Pending]:
        return replayer.start(batch), replayer.inputs(batch, seed), replayer.standing(seed), replayer.resting(seed)

    try:
        start, before, standing, resting = together(checker.ranks, begin, "keeping the step's start")
    except GoneError as error:
        return First(fn(batch), gone=str(error))
    except UncheckedError as error:
        return First(fn(batch), again=str(error))
    allocated = replayer.allocated()
    loss, records = replayer.run(fn, batch, seed)
    found = First(loss)
    if not _repeatable(found, replayer, checker, start, resting, seed=seed):
        _note(found, checker)
        return found
    try:
        together(checker.ranks, lambda: replayer.need_room(allocated), "the preparation of the calibration")
        after = replayer.inputs(batch, seed)
        expected = standing if expected is None else expected
        original = replayer.prints(loss, records, seed, [standing, expected, before, after])
        found.steady, changed = not replayer.differ(standing, expected), replayer.differ(before, after)
        with replayer.keep(start, batch, changed=changed):
            told = checker.ranks.gather([original.post])
            checker.post_alike = replayer.shape.replicas or len({post for (post,) in told}) == 1
            if config.steady:
                original = _steady(found, replayer, checker, fn, batch, start=start, original=original, seed=seed)
            found.calibration = calibrate(
                replayer, checker.ranks, hasher, fn, batch,
                start=start, original=original, seed=seed, replays=config.replays,
            )  # fmt: skip
    except GoneError as error:
        found.gone = str(error)
    except UncheckedError as error:
        found.again = str(error)
    except REPLAY_ERRORS as error:
        found.off = f"the calibration failed, nothing is checked: {line_of(error)}"
    _note(found, checker)
    return found


def _repeatable(
    found: First, replayer: Replayer, checker: Checker, start: Start, resting: Pending, *, seed: int
) -> bool:
    """Whether a replay would leave training as it is; says why not in `found`, on every rank alike."""

    def look() -> None:
        replayer.need_repeatable(start, found.loss)
        if replayer.differ(resting, replayer.resting(seed)):  # a write through `.data` is seen by its effect only
            raise ValueError(CHANGES_ITSELF)

    try:
        together(checker.ranks, look, "telling whether the step can be repeated")
    except GoneError as error:
        found.gone = str(error)
    except UncheckedError as error:
        found.off = f"nothing is checked: {error}"
    return not (found.gone or found.off)


def _steady(
    found: First, replayer: Replayer, checker: Checker, fn: StepFunction, batch: Any, *, start: Start,
    original: Print, seed: int,
) -> Print:  # fmt: skip
    """Try a replay by steady kernels: where it works, checked steps run by them. Raises GoneError.

    It is tried on a replay, because an original that fails for it would be an end of training.

    Returns:
        What calibration compares its replays with.
    """
    if replayer.compiled:
        found.notes.append("checked steps run as the others: torch.compile has chosen the kernels")
        return original
    replayer.steady = Steady()
    try:
        made = together(checker.ranks, lambda: replayer.replay(fn, batch, start, seed), "a step by steady kernels")
    except UncheckedError as error:
        replayer.steady = None
        found.notes.append(f"checked steps run as the others: {error}")
        return original
    found.notes.append("checked steps, and they alone, run by deterministic kernels")
    return made


def _note(found: First, checker: Checker) -> None:
    if found.off:
        found.notes.append(found.off)
    if found.calibration is None:
        return
    if not checker.post_alike:
        found.notes.append("collectives: ranks gather different tensors, which are not compared")
    if not found.steady:
        found.notes.append("state at rest is not checked: the program changes it between two steps")
    if found.calibration.unsound:
        found.notes.append(f"what is reproducible is known from equal replays alone: {found.calibration.unsound}")
