"""GPUs that a host had and has no more: how many it should have is remembered until a person says otherwise.

A burn-in proves the GPUs that it ran on. What fell off the bus is not among them, so that its host would come back with
seven of eight by the proof of the seven. What is counted is GPUs, not serials: one that came in the place of another
makes the host whole again, and is proven with the rest.
"""

from fleetd.model.host import Gpu, Host
from fleetd.model.ids import GpuId

_NAMED = 3


def gone_with(host: Host, found: tuple[Gpu, ...]) -> tuple[GpuId, ...]:
    """The GPUs that a host lacks which now shows `found`, the last that went at the end.

    Where others came for some of them, nobody knows for which: those that went first are taken to be replaced.
    """
    shown = {gpu.gpu for gpu in found}
    lacking = len(host.gone) + len(host.inventory) - len(found)
    absent = [gpu for gpu in (*host.gone, *(g.gpu for g in host.inventory)) if gpu not in shown]
    return tuple(absent[-lacking:]) if lacking > 0 else ()


def in_words(host: Host) -> str:
    """How many GPUs of how many are gone, and which."""
    gone = host.gone
    names = ", ".join(gone[:_NAMED]) + (f" and {len(gone) - _NAMED} more" if len(gone) > _NAMED else "")
    return f"{len(gone)} of {len(host.inventory) + len(gone)} GPUs {'is' if len(gone) == 1 else 'are'} gone ({names})"


def objection(host: Host) -> str | None:
    """Why a burn-in of a host in question proves nothing for all of it; None when none of its GPUs is gone.

    A host that nothing speaks against is not in question: a human was told when the GPU went.
    """
    if not host.gone or not (host.held or host.charges):
        return None
    return f"{in_words(host)}: a burn-in of the others proves nothing about {'it' if len(host.gone) == 1 else 'them'}"
