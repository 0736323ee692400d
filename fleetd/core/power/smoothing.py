"""Whether a part's power-smoothing hardware (NVIDIA, from Blackwell on) is at work, from the XIDs it speaks by.

Smoothing stands between a job's steps and the feed. Where it has dropped out, power follows the load at once, and the
set-point that was tuned with it is no longer known to be good: no boost until it is back.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from fleetd.model.ids import GpuId

BACK, DROPPED, LOW, USED_UP = (f"nvidia.xid.{number}" for number in (162, 163, 164, 165))
"""Codes of the fault catalogue: re-armed, dropped out (heat or time-out), close to its end of life, life used up."""
_WHY = {
    DROPPED: "power smoothing dropped out (XID 163), and XID 162 has not told that it is back",
    USED_UP: "the life of the power-smoothing hardware is used up (XID 165)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """One of the four, and whose it is."""

    code: str
    gpu: GpuId | None
    """None: not one that was known when it was said; see `placed`."""
    device: str | None = None
    """As the kernel's line names it; None: it names none, so with no GPU either it may be any."""

    def same_device(self, other: "Word") -> bool:
        """Whether both speak of one GPU, as far as can be told."""
        known = self.gpu is not None and self.gpu == other.gpu
        return known or (self.device is not None and self.device == other.device)


@dataclass(frozen=True, slots=True, kw_only=True)
class Smoothing:
    """What was heard in this boot. Bounded by the devices that the kernel can name."""

    lost: frozenset[Word] = frozenset()
    spoke: frozenset[Word] = frozenset()
    """Words of all GPUs that have such hardware, for it spoke; their codes say nothing."""


def standing(words: Iterable[Word]) -> Smoothing:
    """Begin with the faults that stand from before a restart of the agent.

    Whether 162 came after 163 cannot be told from them, so that what stands counts as lost until 162 is heard.
    """
    state = Smoothing()
    for word in sorted(words, key=lambda word: word.code != BACK):  # first, so that it ends nothing
        state = heard(state, word)
    return state


def heard(state: Smoothing, word: Word) -> Smoothing:
    """Take one line of the kernel log. 162 ends 163; nothing ends 165. Other codes change nothing."""
    if word.code not in {BACK, DROPPED, LOW, USED_UP}:
        return state
    lost = state.lost
    if word.code in _WHY:
        lost |= {word}
    elif word.code == BACK:
        lost = frozenset(one for one in lost if one.code != DROPPED or not one.same_device(word))
    return replace(state, lost=lost, spoke=state.spoke | {replace(word, code="")})


def placed(state: Smoothing, gpus: Mapping[str, GpuId]) -> Smoothing:
    """Say whose the words are that came before the GPUs were known; `gpus`: by device, as the kernel names it."""
    if all(word.gpu is not None for word in state.spoke):
        return state

    def named(words: frozenset[Word]) -> frozenset[Word]:
        return frozenset(
            replace(word, gpu=gpus.get(word.device)) if word.gpu is None and word.device is not None else word
            for word in words
        )

    return Smoothing(lost=named(state.lost), spoke=named(state.spoke))


def why_lost(state: Smoothing, gpu: GpuId) -> str:
    """Why there is no smoothing on a GPU; "": nothing is known against it."""
    if not state.lost:
        return ""
    codes = {word.code for word in state.lost if _is_of(word, gpu)}
    return "; ".join(why for code, why in _WHY.items() if code in codes)


def _is_of(word: Word, gpu: GpuId) -> bool:
    """A device that is none of the host's known GPUs is nobody's; a line that names none may be anybody's."""
    return word.gpu == gpu or (word.gpu is None and word.device is None)


def is_lost(state: Smoothing, gpu: GpuId) -> bool | None:
    """Whether it has dropped out; None: the GPU has not spoken of it."""
    return bool(why_lost(state, gpu)) if any(_is_of(word, gpu) for word in state.spoke) else None
