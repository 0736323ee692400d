"""An agent says hello: a new host, a reboot, other GPUs, a GPU with a past, a second machine under the same name."""

from dataclasses import replace

from fleetd.core import silence, waiting
from fleetd.core.gone import gone_with
from fleetd.core.invariants import FLEETD, MAX_BOOTS, SERVING
from fleetd.core.lifecycle import Draft, line
from fleetd.model.host import Hello, Hold, Lifecycle
from fleetd.model.ids import GpuId

SKEW_TOLD_S = 60.0
"""An agent's clock that is further off than this is told to a human: its findings carry wrong times."""


def connected(draft: Draft, hello: Hello) -> None:
    """Judge a hello."""
    before = draft.host
    if hello.boot_id in before.boots:
        said = (
            f"a hello of boot {hello.boot_id}, which was before boot {before.boot_id}: "
            "it comes late, or a second machine uses the same name; it is not listened to"
        )
        draft.notify(said, about="second machine")
        draft.say(said)
        return
    silence.heard_again(draft)
    _clock(draft, hello)
    known, found = {g.gpu for g in before.inventory}, {g.gpu for g in hello.inventory}
    if (before.boot_id, before.inventory, before.place) != (hello.boot_id, hello.inventory, hello.place):
        gone = gone_with(before, hello.inventory)
        draft.set(boot_id=hello.boot_id, inventory=hello.inventory, place=hello.place, gone=gone)
    if before.driver_version != hello.driver_version:
        draft.set(driver_version=hello.driver_version)
    _arrived(draft, tuple(sorted(found - known)))
    if before.state is Lifecycle.NEW:
        draft.move(Lifecycle.QUALIFYING, f"first contact: {len(found)} GPUs, nothing proven yet")
        draft.burnin_for_proof("a new host must qualify")
        return
    if before.boot_id == hello.boot_id and known == found:
        if not waiting.came_back(draft):
            draft.say("connected again: same boot, same GPUs, nothing new")
        return
    _changed(
        draft, hello, before_boot=before.boot_id is not None, lost=known - found, new=found - known if known else set()
    )


def _changed(draft: Draft, hello: Hello, *, before_boot: bool, lost: set[GpuId], new: set[GpuId]) -> None:
    """What passed or runs belongs to another boot or to other GPUs."""
    before = draft.before
    rebooted = before.boot_id != hello.boot_id
    if rebooted and before.boot_id is not None:
        draft.set(boots=(*before.boots, before.boot_id)[-MAX_BOOTS:])
    # A host that reboots in the middle of its burn-in has used an attempt up: it may do so every time.
    in_it = before.pending is not None and before.pending.accepted and rebooted
    draft.set(proof=None, pending=None, due=None, ballots=(), attempts=before.attempts + 1 if in_it else 0)
    changes = ["it has rebooted" if before_boot else "its first hello"] if rebooted else []
    changes += ["in the middle of a burn-in"] if in_it else []
    changes += [f"GPUs are gone: {', '.join(sorted(lost))}"] if lost else []
    changes += [f"GPUs are new: {', '.join(sorted(new))}"] if new else []
    said = line(" and ".join(changes) or "its inventory is known now")
    if lost and not draft.host.held:
        draft.notify(f"{said}: fewer GPUs must not pass for a healthy host", about=f"gone/{','.join(sorted(lost))}")
    if in_it and draft.host.attempts >= draft.policy.qualify.attempts:
        if draft.host.state in SERVING:
            draft.move(Lifecycle.SUSPECT, said)
        draft.page(f"{said}, {draft.host.attempts} times in a row: no further burn-in is ordered; look at it")
        draft.say(f"{said}, {draft.host.attempts} times in a row: a human is asked")
        return
    _start_again(draft, said, gpus_changed=bool(lost or new))


def _start_again(draft: Draft, said: str, *, gpus_changed: bool) -> None:
    """Ask for the proof that a new boot or other GPUs make necessary. A reboot cures nothing by itself."""
    state, charged = draft.host.state, bool(draft.host.charges)
    if state in SERVING:
        if not gpus_changed and not charged and not draft.policy.requalify_after_reboot:
            draft.say(f"{said}: still {state}, the policy asks for no requalification after a reboot")
            return
        draft.move(Lifecycle.QUALIFYING, f"{said}: must qualify again")
        draft.burnin_for_proof(said)
    elif state is Lifecycle.REPAIRING:
        draft.say(f"{said}: still under repair, nothing is run until an operator orders a burn-in")
    elif not draft.host.held:
        draft.say(f"{said}: still {state} until it has proven itself")
        draft.burnin_for_proof(said)
    elif any(hold.proof_level is not None for hold in draft.host.holds):
        draft.say(f"{said}: still {state}, its holds ask for proof")
        draft.burnin_for_proof(said)
    else:
        draft.say(f"{said}: still {state}, an operator decides")


def _arrived(draft: Draft, gpus: tuple[GpuId, ...]) -> None:
    """GPUs that were not here before: what is said of their serials elsewhere comes with them."""
    name = draft.host.name
    claimed = {gpu: hosts for gpu in gpus if (hosts := [h for h in draft.fleet.claims(gpu) if h != name])}
    if claimed:
        others = sorted({host for hosts in claimed.values() for host in hosts})
        draft.notify(
            f"{len(claimed)} of its GPUs ({', '.join(claimed)}) are named by {', '.join(others)} too: "
            "they were moved here, or two machines claim them",
            about="claimed",
        )
    for gpu in gpus:
        marks = [mark for mark in draft.fleet.marks(gpu) if mark not in draft.host.marks]
        if marks:
            last = marks[-1].fault_class
            draft.say(f"gpu {gpu} has a history: condemned {len(marks)} times elsewhere, last for {last}")
        for hold in draft.fleet.open_holds(gpu, elsewhere_than=name):
            if hold.owner == FLEETD:
                draft.charge(_moved(hold, draft), "it came with the GPU from another host", None)
                draft.say(f"gpu {gpu} comes with an open hold: {hold.reason}")


def _moved(hold: Hold, draft: Draft) -> Hold:
    return replace(hold, boot_id=draft.host.boot_id, at_s=draft.now_s)


def _clock(draft: Draft, hello: Hello) -> None:
    if hello.at_s is None or abs(hello.at_s - draft.now_s) <= SKEW_TOLD_S:
        return
    draft.notify(
        f"its clock is {hello.at_s - draft.now_s:+.0f} seconds off: orders are sent in its time, "
        "but what it finds carries wrong times; look at its time service",
        about="clock",
    )
