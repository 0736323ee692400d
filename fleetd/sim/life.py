"""The life of one simulated process, and where it can be cut: before and after everything that lasts.

A process that is killed stops between two instructions. Here that is an adapter's call that raises `Killed`; whatever
is still running of the dead process can do nothing any more, because each of its adapters asks its `Life` first.
"""

from collections.abc import Callable


class Killed(BaseException):
    """The process in which this ran is dead. No `Exception`: nobody catches it, as nobody catches SIGKILL."""


class Fuse:
    """Counts the boundaries that the processes of a world pass, and burns at one of them."""

    def __init__(self, cut_at: int | None = None, *, power: bool = False) -> None:
        """Set it.

        Args:
            cut_at: number of the boundary, from 0, at which the process that reaches it dies; None: nobody does.
            power: whether the whole host goes down with an agent that is cut, and boots again.
        """
        self._cut_at = cut_at
        self.power = power
        self.passed: list[str] = []
        """Every boundary so far, in order: `OWNER: what`."""

    def burns(self, boundary: str) -> bool:
        """Pass a boundary; True when the process dies there."""
        self.passed.append(boundary)
        return len(self.passed) - 1 == self._cut_at


class Life:
    """One process from its start to its end. A restart is another life."""

    def __init__(self, owner: str, *, fuse: Fuse | None, on_end: Callable[[], None]) -> None:
        """Begin.

        Args:
            owner: whose process it is: the name of a host, or `controller`.
            fuse: counts the boundaries; None: nobody counts.
            on_end: called once, at the moment of death.
        """
        self.owner = owner
        self.alive = True
        self.cut = False
        """Whether the fuse ended it."""
        self._fuse = fuse
        self._on_end = on_end

    def end(self) -> None:
        """Kill the process; idempotent."""
        if self.alive:
            self.alive = False
            self._on_end()

    def check(self) -> None:
        """Raise Killed in a dead process."""
        if not self.alive:
            raise Killed(self.owner)

    def boundary(self, what: str) -> None:
        """Pass a place at which the process may be cut. Raises Killed when it is, or is dead already."""
        self.check()
        if self._fuse is not None and self._fuse.burns(f"{self.owner}: {what}"):
            self.cut = True
            self.end()
            raise Killed(self.owner)
