"""What a run leaves on disk while it goes on: how far it is, and how long each GPU was tested by what. No torch here.

A disk that is full costs the run nothing but this; it is told once.
"""

from burnin.checkpoint import Checkpoint, CheckpointError, differs, load, save
from burnin.exposure import add, exposure_of
from burnin.options import Options
from burnin.telling.progress import Progress
from burnin.verdict.evidence import Evidence


class Keeping:
    """See the module."""

    def __init__(self, options: Options, progress: Progress, notes: list[str]) -> None:
        """`notes` hears what could not be kept; each story once."""
        self._options = options
        self._progress = progress
        self._notes = notes

    def resumed(self, about: dict[str, object]) -> Checkpoint | None:
        """Where an earlier run like this one stopped; None: begin anew, and why, if there was something to go on from.

        Args:
            about: what identifies this run.
        """
        path = self._options.resume
        if path is None:
            return None
        try:
            found = load(path)
        except CheckpointError as error:
            self._note(f"--resume {path}: {error}: starting anew")
            return None
        if found is None:
            return None
        if other := differs(found, about):
            self._note(f"--resume {path}: it is of another run (its {other} differ): starting anew")
            return None
        slices = len(found.done)
        self._note(f"--resume {path}: going on after {found.elapsed_s:.0f} s and {slices} slices of an earlier process")
        return found

    def keep(self, checkpoint: Checkpoint) -> None:
        """Write how far the run is."""
        path = self._options.resume
        if path is None:
            return
        try:
            save(path, checkpoint)
        except OSError as error:
            self._note(f"--resume {path}: not written ({error.strerror}): what is done now will be done again")

    def expose(self, found: Evidence) -> None:
        """Add what a slice did to the record of exposure."""
        path, more = self._options.exposure, exposure_of(found)
        if path is None or not more:
            return
        try:
            note = add(path, more)
        except OSError as error:
            note = f"{path}: not written ({error.strerror})"
        if note:
            self._note(f"--exposure: {note}")

    def _note(self, text: str) -> None:
        if text not in self._notes:
            self._notes.append(text)
            self._progress.note(text)
