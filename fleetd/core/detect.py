"""Detection: from readings of the GPUs to what is wrong with them, told once an episode. Pure.

`detect(state, samples, …) → Detection(state, raised, cleared, why)`. The rules are in `detect_rules`; here their
verdicts become episodes with hysteresis. Always true: what was not read raises nothing and clears nothing; between
two findings of one code on one GPU there was a proof that the first had ended; a GPU that is gone keeps its episodes.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from fleetd.core.detect_config import DetectConfig
from fleetd.core.detect_notes import Notes, Seen, Tracker
from fleetd.core.detect_rules import GPU_LOST, RULES, lost
from fleetd.core.detect_track import CALM, Episode, Turn, turn
from fleetd.model.ids import GpuId
from fleetd.model.telemetry import GpuSample

GPUS_MAX = 256
"""More are not watched: no host has them, so the names are made up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What is remembered of one GPU."""

    trackers: Mapping[str, Tracker] = field(default_factory=dict)
    episodes: Mapping[str, Episode] = field(default_factory=dict)
    """By code, those that are raised or may become so; bounded by the rules."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Detected:
    """One condition of one GPU that began or ended."""

    code: str
    """Entry of the fault catalogue."""
    gpu: GpuId
    began_at_s: float
    """Wall time at which the episode was told first; with the code and the GPU it names the episode."""
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Detection:
    """What the readings mean."""

    state: Mapping[GpuId, Watched]
    raised: tuple[Detected, ...]
    cleared: tuple[Detected, ...]
    why: str
    """One line for the log; "nothing new" when nothing was raised or cleared."""


def detect(
    state: Mapping[GpuId, Watched],
    samples: Sequence[GpuSample],
    *,
    now_s: float,
    at_s: float,
    skus: Mapping[GpuId, str],
    troubles: Mapping[GpuId, str],
    config: DetectConfig,
) -> Detection:
    """Judge one round of readings.

    Args:
        state: What the last call returned; empty at first.
        samples: One reading of each GPU that answered.
        now_s: Monotonic seconds of the round.
        at_s: Wall time of the round; only names what begins now.
        skus: Product name of each GPU, as the vendor library spells it.
        troubles: Why a GPU is missing in the samples, as the devices say it.
        config: The thresholds.
    """
    after = dict(state)
    raised: list[Detected] = []
    cleared: list[Detected] = []
    for sample in samples:
        if sample.gpu not in after and len(after) >= GPUS_MAX:
            continue
        watched = after.get(sample.gpu, Watched())
        notes = Notes(watched.trackers, now_s=now_s, sku=skus.get(sample.gpu, ""))
        seen = [one for rule in RULES for one in rule(sample, notes, config)]
        seen.append(Seen(code=GPU_LOST, bad=False, why="the driver reads it again"))
        episodes = _turn(
            sample.gpu, watched.episodes, seen, now_s=now_s, at_s=at_s, config=config, out=(raised, cleared)
        )
        after[sample.gpu] = Watched(trackers=notes.kept, episodes=episodes)
    for gpu in _missing(troubles, samples):
        watched = after.get(gpu, Watched())
        if gpu not in after and len(after) >= GPUS_MAX:
            continue
        seen = [Seen(code=GPU_LOST, bad=lost(troubles[gpu]), why=troubles[gpu])]
        episodes = _turn(gpu, watched.episodes, seen, now_s=now_s, at_s=at_s, config=config, out=(raised, cleared))
        # Trackers are dropped: whatever the GPU counts when it comes back began anew.
        after[gpu] = Watched(episodes=episodes)
    parts = [f"{one.gpu}: {one.code}: {one.why}" for one in raised]
    parts += [f"{one.gpu}: {one.code} is over: {one.why}" for one in cleared]
    return Detection(state=after, raised=tuple(raised), cleared=tuple(cleared), why="; ".join(parts) or "nothing new")


def standing(state: Mapping[GpuId, Watched]) -> tuple[tuple[GpuId, str, float], ...]:
    """The raised episodes: GPU, code, wall time of their beginning; sorted."""
    return tuple(
        sorted(
            (gpu, code, episode.began_at_s or 0.0)
            for gpu, watched in state.items()
            for code, episode in watched.episodes.items()
            if episode.raised
        )
    )


def _missing(troubles: Mapping[GpuId, str], samples: Sequence[GpuSample]) -> list[GpuId]:
    answered = {sample.gpu for sample in samples}
    return sorted(gpu for gpu in troubles if gpu not in answered)


def _turn(
    gpu: GpuId,
    episodes: Mapping[str, Episode],
    seen: Collection[Seen],
    *,
    now_s: float,
    at_s: float,
    config: DetectConfig,
    out: tuple[list[Detected], list[Detected]],
) -> Mapping[str, Episode]:
    """Bring the verdicts to the episodes of a GPU; calm ones are not kept."""
    after = dict(episodes)
    for one in seen:
        before = after.get(one.code, CALM)
        if before is CALM and not one.bad:
            continue  # nearly always: what is calm and not bad stays calm
        episode, happened = turn(
            before, one.bad, now_s=now_s, at_s=at_s, raise_s=one.raise_s, clear_s=config.clear_seconds
        )
        if happened is Turn.RAISED:
            out[0].append(Detected(code=one.code, gpu=gpu, began_at_s=at_s, why=one.why))
        elif happened is Turn.CLEARED:
            out[1].append(Detected(code=one.code, gpu=gpu, began_at_s=before.began_at_s or 0.0, why=one.why))
        if episode == CALM:
            after.pop(one.code, None)
        else:
            after[one.code] = episode
    return after
