"""What to do with a condemned GPU: reset, then reboot, then replace, by the history of its serial, slot and host.

fleetd recommends; people or their tools act. The history follows the serial: moving a bad GPU to another host does not
give it new attempts, and a slot that condemns one GPU after the other is not cured by yet another GPU.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain

from fleetd.core.policy import Action, Repair
from fleetd.model.host import Mark
from fleetd.model.ids import GpuId

SLOT_SERIALS = 2
"""So many different GPUs condemned in one slot accuse the slot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """The next thing to try."""

    action: Action
    why: str

    @property
    def final(self) -> bool:
        """Whether attempts are used up: a person has to exchange something."""
        return self.action is Action.REPLACE


def advise(
    repair: Repair,
    *,
    now_s: float,
    gpu: GpuId | None,
    slot: str | None,
    of_gpu: Iterable[Mark],
    of_host: Iterable[Mark],
) -> Advice:
    """What to try after a condemnation that is among the marks already.

    Args:
        repair: how often what is worth a try.
        now_s: wall time, seconds since the epoch.
        gpu: the condemned GPU; None when the host itself is.
        slot: where it sits.
        of_gpu: condemnations of this serial, on any host.
        of_host: condemnations of this host, of any GPU or none.
    """
    since_s = now_s - repair.window_seconds
    host_marks = [m for m in of_host if m.at_s > since_s]
    own = {m.finding: m for m in chain(of_gpu, host_marks) if m.gpu == gpu and m.at_s > since_s}
    serials = {m.gpu for m in host_marks if slot is not None and m.slot == slot and m.gpu is not None}
    if len(serials) >= SLOT_SERIALS:
        return Advice(
            action=Action.REPLACE,
            why=f"{len(serials)} different GPUs were condemned in slot {slot}: suspect the slot, not the GPU",
        )
    if len(host_marks) > repair.host_at_most:
        return Advice(action=Action.REPLACE, why=f"the host was condemned {len(host_marks)} times: suspect the host")
    what = "the host" if gpu is None else f"gpu {gpu}"
    times = max(len(own), 1)
    if gpu is not None and times <= repair.resets:
        return Advice(action=Action.RESET_GPU, why=f"condemnation {times} of {what}: reset it")
    if times <= repair.reboots + (repair.resets if gpu is not None else 0):
        return Advice(action=Action.REBOOT, why=f"condemnation {times} of {what}: reboot")
    return Advice(action=Action.REPLACE, why=f"condemnation {times} of {what}: resets and reboots are used up, replace")
