"""The levels of a burn-in: how long each may take, and what long ones do beside taking every test once. Torch-free.

Which tests a level has stands with the tests (`burnin.tests`); in which order and for how long each of them runs is
`burnin.schedule`'s.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

HARD_RATIO, HARD_MORE_S = 0.2, 15.0
"""A level that takes longer by more than this share of its time, and by more than these seconds (a host that was just
booted reads its libraries from a cold disk), is ended and not judged: at 90 s for `smoke`, which a job waits for."""
PATIENCE_RATIO = 1.5
"""Of a level's time: stand-ins for a GPU, which no time limit ends, and a restart in the middle are in it."""
SLICE_MAX_S = 60.0
"""No turn of a test plans for more: whatever ends a run takes at most one turn's work with it."""
TURNS_MIN = 20
"""A level's time is cut into at least so many turns, so that what is left of a short one can be filled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """One level. Times are for a host of eight GPUs that work in parallel."""

    name: str
    what: str
    seconds: float
    cycles: int = 0
    """Cold/hot cycles after the first pass over all tests, spread evenly over the level's time."""
    retention_s: float = 0.0
    """How long memory must hold what was written, half of it each way up."""
    gives_way: bool = False
    """Whether it ends as soon as somebody else uses one of its GPUs."""
    small: Mapping[str, str] = field(default_factory=dict)
    """Test → pattern of the names of its cases that belong to the level, where it has a part of them only. On stand-ins
    for a GPU the test has few cases anyway, and all belong."""

    @property
    def hard_seconds(self) -> float:
        """When the level is ended, whatever it is doing."""
        return self.seconds + max(HARD_RATIO * self.seconds, HARD_MORE_S)

    @property
    def patience_seconds(self) -> float:
        """After how long whoever ordered it may take it for lost."""
        return PATIENCE_RATIO * self.seconds

    @property
    def slice_seconds(self) -> float:
        """How long one turn of a test is."""
        return min(SLICE_MAX_S, self.seconds / TURNS_MIN)

    @property
    def long(self) -> bool:
        """Whether it goes on with turns also on stand-ins for a GPU, and is worth being resumed."""
        return self.cycles > 0


RETENTION_CPU_S = 1.0
"""A CPU that stands in for a GPU really waits; a simulated GPU is only told that time passed."""

SELF, IDLE = "self", "idle"
LEVELS: Mapping[str, Level] = {
    level.name: level
    for level in (
        Level(name=SELF, what="can this host judge at all", seconds=15.0),
        Level(
            name="smoke", what="before a job, when a node starts", seconds=75.0, small={"collective.exact": "* default"}
        ),
        Level(name="quick", what="after a requeue or a soft error, weekly", seconds=300.0),
        Level(name="qualify", what="a new host; after a repair, a new driver or firmware", seconds=1800.0),
        Level(name="burnin", what="acceptance", seconds=4 * 3600.0, cycles=3, retention_s=1800.0),
        Level(
            name="soak",
            what="a suspect host; evidence for its return",
            seconds=24 * 3600.0,
            cycles=18,
            retention_s=1800.0,
        ),
        Level(name=IDLE, what="while nobody uses the GPUs; gives way", seconds=120.0, gives_way=True),
    )
}
"""From the shortest to the longest, but for `idle`, which proves nothing that a hold may ask for."""

LADDER = tuple(name for name in LEVELS if name != IDLE)
"""Levels of which a longer one proves what a shorter one does."""


def since(first: str) -> frozenset[str]:
    """A level of the ladder and all longer ones."""
    return frozenset(LADDER[LADDER.index(first) :])


def retention_seconds(level: Level, *, backend: str, seconds: float) -> float:
    """How long memory holds its data in a run of a level that takes `seconds` instead of the level's own time."""
    whole = level.retention_s * min(1.0, seconds / level.seconds)
    return min(whole, RETENTION_CPU_S) if backend == "cpu" else whole
