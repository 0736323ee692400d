"""What a rule of the detection works with: the trackers of one GPU, and the form of what it sees. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from fleetd.core.detect_track import Same, Share, Window, count, same, share

Tracker = Window | Share | Same


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What one rule sees in one reading."""

    code: str
    bad: bool | None
    """None: this reading cannot tell."""
    why: str
    raise_s: float = 0.0
    """For how long it must be seen without a break before it is a finding."""


class Notes:
    """The trackers of one GPU while one reading is judged: a copy, which becomes the state after it."""

    def __init__(self, kept: Mapping[str, Tracker], *, now_s: float, sku: str) -> None:
        self.kept = dict(kept)
        self.now_s = now_s
        self.sku = sku
        self._rates: dict[str, str] = {}

    def count(self, name: str, value: float | None, *, at_least: float, within_s: float) -> bool | None:
        """See `detect_track.count`."""
        before = self._window(name)
        after = count(before, value, now_s=self.now_s, at_least=at_least, within_s=within_s)
        if before is not None and value is not None:
            self._rates[name] = f"{value - before.value:.0f} in {self.now_s - before.start_s:.0f} s"
        self._keep(name, after)
        return None if after is None else after.verdict

    def rate(self, name: str) -> str:
        """How a counter grew in its present window, for a sentence."""
        return self._rates.get(name, "none")

    def share(self, name: str, bad: bool | None, *, at_least: float, within_s: float) -> bool | None:
        """See `detect_track.share`."""
        kept = self.kept.get(name)
        kept = kept if isinstance(kept, Share) else None
        after = share(kept, bad, now_s=self.now_s, at_least=at_least, within_s=within_s)
        self._keep(name, after)
        return None if after is None else after.verdict

    def same(self, name: str, value: float | None) -> Same | None:
        """See `detect_track.same`."""
        kept = self.kept.get(name)
        after = same(kept if isinstance(kept, Same) else None, value, now_s=self.now_s)
        self._keep(name, after)
        return after

    def before(self, name: str, value: float | None) -> float | None:
        """The value of the reading before; keeps the present one."""
        kept = self._window(name)
        if value is not None:
            self.kept[name] = Window(start_s=self.now_s, value=value)
        return kept.value if kept else None

    def forget(self, *names: str) -> None:
        """Begin these trackers anew with the next reading."""
        for name in names:
            self.kept.pop(name, None)

    def _window(self, name: str) -> Window | None:
        kept = self.kept.get(name)
        return kept if isinstance(kept, Window) else None

    def _keep(self, name: str, after: Tracker | None) -> None:
        if after is None:
            self.kept.pop(name, None)
        else:
            self.kept[name] = after
