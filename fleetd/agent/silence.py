"""Who has not answered for too long: pure bookkeeping of silences, each told once. Times are handed in."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from fleetd.model.finding import DRIVER_UNRESPONSIVE
from fleetd.model.ids import GpuId


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """One episode: a GPU, or the whole driver, that gives no sample."""

    code: str
    gpu: GpuId | None
    """None: nobody answers."""
    since_s: float
    """Monotonic time of the beginning of the first call that failed."""
    began_at_s: float
    """Wall time of the same, noted once: it is part of the finding's identity."""
    why: str
    """What the adapter said last."""


class SilenceWatch:
    """Keeps the silences of one host.

    A GPU is silent while it is in trouble: asked in vain, or left alone. One that was merely not asked, because the
    helper was lost on the GPU before it, is not: it keeps the silence that it had, or none.
    """

    def __init__(self, *, after_s: float, discovery_s: float) -> None:
        """`after_s` of silence are too long; before the first answer ever, `discovery_s`."""
        self._after_s = after_s
        self._discovery_s = discovery_s
        self._discovered = False
        self._driver: Silence | None = None
        self._gpus: dict[GpuId, Silence] = {}  # bounded by the GPUs of the host, as the adapter names them
        self._told: set[tuple[str, GpuId | None]] = set()

    def configure(self, *, after_s: float, discovery_s: float) -> None:
        """Be as patient as this from now on."""
        self._after_s = after_s
        self._discovery_s = discovery_s

    def rest(self) -> None:
        """Nobody is asked for some time: what was silent has to be silent anew, as after a start."""
        self._driver = None
        self._gpus.clear()
        self._told.clear()
        self._discovered = False

    @property
    def told_gpus(self) -> tuple[GpuId, ...]:
        """GPUs whose present silence has been told, sorted."""
        return tuple(sorted(gpu for _, gpu in self._told if gpu is not None))

    @property
    def driver_told(self) -> str:
        """Code and reason when nobody answers, and that has been told; else ""."""
        driver = self._driver
        return f"{driver.code}: {driver.why}" if driver is not None and (driver.code, None) in self._told else ""

    def fails(self, code: str, why: str, *, began_s: float, began_at_s: float) -> None:
        """A call failed as a whole."""
        kept = self._driver
        if kept is None or kept.code != code:
            kept = Silence(code=code, gpu=None, since_s=began_s, began_at_s=began_at_s, why=why)
        self._driver = Silence(code=code, gpu=None, since_s=kept.since_s, began_at_s=kept.began_at_s, why=why)

    def answers(
        self, answered: Collection[GpuId], troubles: Mapping[GpuId, str], *, began_s: float, began_at_s: float
    ) -> tuple[Silence, ...]:
        """A call was answered, though not by every GPU; returns the told silences that it ended."""
        before, self._driver = self._driver, None
        self._discovered = True
        for gpu, why in troubles.items():
            # If nobody answered before, then neither did this one: its silence began with that one.
            kept = self._gpus.get(gpu) or before
            since = (kept.since_s, kept.began_at_s) if kept else (began_s, began_at_s)
            self._gpus[gpu] = Silence(code=DRIVER_UNRESPONSIVE, gpu=gpu, since_s=since[0], began_at_s=since[1], why=why)
        ended = [self._gpus.pop(gpu) for gpu in answered if gpu in self._gpus]
        if before is not None:
            ended.append(before)
        told = tuple(silence for silence in ended if (silence.code, silence.gpu) in self._told)
        self._told -= {(silence.code, silence.gpu) for silence in ended}
        if before is not None:
            self._told -= {(code, gpu) for code, gpu in self._told if gpu is None}
        return told

    def overdue(self, now_s: float) -> tuple[Silence, ...]:
        """Silences that have become too long and have not been told. While nobody answers, only that one counts."""
        if self._driver is not None:
            silences: tuple[Silence, ...] = (self._driver,)
            limit_s = self._after_s if self._discovered else max(self._after_s, self._discovery_s)
        else:
            silences, limit_s = tuple(self._gpus.values()), self._after_s
        return tuple(
            silence
            for silence in silences
            if now_s - silence.since_s >= limit_s and (silence.code, silence.gpu) not in self._told
        )

    def tell(self, silence: Silence) -> None:
        """It has been told, for good: until it ends it is not overdue again."""
        self._told.add((silence.code, silence.gpu))
