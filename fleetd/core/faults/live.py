"""A log judged while it grows: each finding is told when it first shows, and again when more lines change it.

The judgement is that of `scan`, over the window of the last minutes: a cause that comes after its follow-on makes the
follow-on a victim, and that is told as a change.
"""

from collections import deque

from fleetd.core.faults.catalogue import Catalogue
from fleetd.core.faults.incidents import Incidents
from fleetd.core.faults.lines import LineReader
from fleetd.core.faults.observation import Finding, Observation, device_key
from fleetd.core.faults.prefix import split
from fleetd.core.faults.sieve import candidates

WINDOW_S = 900.0
"""Faults of one incident come within seconds; a quarter of an hour also covers a host that is dying slowly."""
WINDOW_MAX = 500
"""Observations in the window: a flood pushes the oldest out, and costs no more than this many judgements a line."""

_Key = tuple[str, str | None, str]


class LiveScan:
    """Reads a log line by line. Time is handed in."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._reader = LineReader(catalogue)
        self._window: deque[tuple[float, Observation]] = deque(maxlen=WINDOW_MAX)
        self._told: dict[_Key, tuple[str, str]] = {}
        self._lines = 0
        self.observed: tuple[Observation, ...] = ()
        """What the newest line said, also when it was said before: for whoever needs every repetition."""

    def read(self, line: str, *, now_s: float) -> tuple[Finding, ...]:
        """Read one line.

        Args:
            line: As it came from the log, with its prefix.
            now_s: Monotonic seconds.

        Returns:
            Findings that are new, or whose role or action is another one than was told.
        """
        self._lines += 1
        self.observed = ()
        if not candidates(line.lower().encode("utf-8", "replace")):
            return ()
        _, observations = self._reader.read(split(line), self._lines)
        if not observations:
            return ()
        self.observed = tuple(observations)
        self._forget(now_s)
        known = {_key_of(observation) for _, observation in self._window}
        self._window.extend((now_s, observation) for observation in observations)
        if all(_key_of(observation) in known for observation in observations):
            return ()  # a repetition changes neither role nor action
        return self._changed()

    def _forget(self, now_s: float) -> None:
        """Let go of what is older than the window, and of having told it: seen again it is told again."""
        if not self._window or self._window[0][0] >= now_s - WINDOW_S:
            return
        while self._window and self._window[0][0] < now_s - WINDOW_S:
            self._window.popleft()
        left = {(observation.code, device_key(observation.device)) for _, observation in self._window}
        self._told = {key: what for key, what in self._told.items() if key[:2] in left}

    def _changed(self) -> tuple[Finding, ...]:
        incidents = Incidents(self._catalogue)
        for _, observation in self._window:
            incidents.add(observation)
        told: dict[_Key, tuple[str, str]] = {}
        changed: list[Finding] = []
        for finding in incidents.findings():
            key = (finding.code, device_key(finding.device), finding.text)
            told[key] = (finding.role, finding.action.value)
            if self._told.get(key) != told[key]:
                changed.append(finding)
        self._told = told
        return tuple(changed)


def _key_of(observation: Observation) -> tuple[str, str | None, str, str | None]:
    action = None if observation.action is None else observation.action.value
    return (observation.code, device_key(observation.device), observation.part, action)
