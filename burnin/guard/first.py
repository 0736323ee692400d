"""The step at which a guard calibrates."""

from dataclasses import dataclass, field
from typing import Any

from burnin.guard.calibrate import Calibration, calibrate
from burnin.guard.check import Checker
from burnin.guard.hashes import Hasher
from burnin.guard.joint import UncheckedError, line_of, together
from burnin.guard.ranks import GoneError
from burnin.guard.replay import REPLAY_ERRORS, Replayer, StepFunction


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
    expected: tuple[int, int] | None, replays: int,
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
        replays: of the calibration.
    """
    if why := replayer.shape.why_not():
        return First(fn(batch), again=why)
    try:
        start, before, standing = together(
            checker.ranks,
            lambda: (replayer.start(batch), replayer.inputs(batch, seed), replayer.standing(seed)),
            "keeping the step's start",
        )
    except GoneError as error:
        return First(fn(batch), gone=str(error))
    except UncheckedError as error:
        return First(fn(batch), again=str(error))
    allocated = replayer.allocated()
    loss, records = replayer.run(fn, batch, seed)
    found = First(loss)
    found.steady = expected is None or expected == standing
    try:
        together(checker.ranks, lambda: replayer.need_room(allocated), "the preparation of the calibration")
        original = replayer.prints(loss, records, seed)
        changed = replayer.inputs(batch, seed) != before
        with replayer.keep(start, batch, changed=changed):
            told = checker.ranks.gather([original.post])
            checker.post_alike = replayer.shape.replicas or len({post for (post,) in told}) == 1
            found.calibration = calibrate(
                replayer, checker.ranks, hasher, fn, batch, start=start, original=original, seed=seed, replays=replays
            )
    except GoneError as error:
        found.gone = str(error)
    except UncheckedError as error:
        found.again = str(error)
    except REPLAY_ERRORS as error:
        found.off = f"the calibration failed, nothing is checked: {line_of(error)}"
    _note(found, checker)
    return found


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
