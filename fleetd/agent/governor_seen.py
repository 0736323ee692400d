"""What each governed GPU's power did lately, kept from the readings that the governor takes anyway."""

from collections.abc import Iterable, Mapping, Sequence

from fleetd.core.power.observe import Track, windows_shown
from fleetd.model.envelope import Envelope
from fleetd.model.ids import GpuId
from fleetd.model.power import PowerReading, PowerSeen

RING_S = 1.5
"""Between two askings for the ring of samples: no multiple of a turn. It holds 2.36 s on an H200."""


class GovernorSeen:
    """One track a GPU: of its ring of samples where the part has one, else of the readings themselves."""

    def __init__(self, envelope: Envelope) -> None:
        self._envelope = envelope
        self.windows = windows_shown(envelope)
        self._tracks: dict[GpuId, Track] = {}
        self._ringed: set[GpuId] = set()
        self._due_s: dict[GpuId, float] = {}

    def due(self, gpus: Sequence[GpuId], now_s: float) -> tuple[GpuId, ...]:
        """Whose ring is asked for in this turn: all at first, then each in its time, so that no turn is a long one."""
        due = tuple(gpu for gpu in gpus if now_s >= self._due_s.get(gpu, now_s))
        for place, gpu in enumerate(gpus, 1):
            if gpu in due:
                wait_s = RING_S if gpu in self._due_s else RING_S * place / len(gpus)
                self._due_s[gpu] = now_s + wait_s
        return due

    def take(self, readings: Mapping[GpuId, PowerReading]) -> None:
        """Take what one turn has read."""
        for gpu, reading in readings.items():
            if reading.samples and gpu not in self._ringed:
                self._ringed.add(gpu)
                self._tracks.pop(gpu, None)  # of readings, on another clock
            track = self._tracks.get(gpu)
            if track is None:
                track = self._tracks[gpu] = Track(self._envelope)
            if reading.samples:
                track.push(reading.samples)
            elif gpu not in self._ringed and reading.power_watts is not None:
                track.push(((reading.at_s, reading.power_watts),))

    def keep(self, gpus: Iterable[GpuId]) -> None:
        """Forget all others."""
        there = set(gpus)
        self._tracks = {gpu: track for gpu, track in self._tracks.items() if gpu in there}
        self._ringed &= there
        self._due_s = {gpu: due_s for gpu, due_s in self._due_s.items() if gpu in there}

    def of(self, gpu: GpuId) -> PowerSeen | None:
        """What was seen; None: nothing yet."""
        track = self._tracks.get(gpu)
        return None if track is None else track.seen
