"""What became of the faults that the user planted: whether they fired, and whether anybody noticed. Pure, torch-free.

A run in which a planted fault was not found is not judged: what misses one that is known to be there proves nothing.
"""

from collections import Counter
from collections.abc import Container
from dataclasses import dataclass

from burnin.verdict.deaths import told
from burnin.verdict.evidence import Evidence
from burnin.verdict.links import bounded


@dataclass(frozen=True, slots=True, kw_only=True)
class Injected:
    """What became of a planted fault."""

    gpu: str
    index: int
    fault: str
    rate: float
    seed: int
    fired: int
    """Launches that it changed, of ballots that were cast: what a process did before it died is not known."""
    found: bool


def planted(evidence: Evidence, blamed: Container[str]) -> tuple[Injected, ...]:
    """Every planted fault; it is found when its GPU is among the blamed."""
    fired = Counter[str]()
    for cast in evidence.casts:
        fired[cast.gpu] += cast.ballot.fired
    ids = {device.index: device.gpu for device in evidence.devices}
    return tuple(
        Injected(
            gpu=ids[one.gpu],
            index=one.gpu,
            fault=one.fault,
            rate=one.rate,
            seed=one.seed,
            fired=fired[ids[one.gpu]],
            found=ids[one.gpu] in blamed,
        )
        for one in evidence.injected
    )


def missed(one: Injected, evidence: Evidence) -> str:
    """Why a planted fault was not found: its GPU died, or it never fired, or nobody noticed, and where."""
    died = [told(death) for death in evidence.deaths if death.gpu == one.gpu]
    if not one.fired and died:
        return f"injected fault {one.fault} on GPU {one.index} left no result: {died[0]}"
    if not one.fired:
        return f"injected fault {one.fault} on GPU {one.index} never fired"
    struck = [cast for cast in evidence.casts if cast.gpu == one.gpu and cast.ballot.fired]
    where = ", ".join(dict.fromkeys(cast.test for cast in struck))
    inside = all(bounded(cast.ballot) for cast in struck)
    why = f"self-test missed: injected fault {one.fault} on GPU {one.index} changed {one.fired} launches unnoticed"
    return f"{why} in {where}" + (", which takes any result inside its bound for right" if inside else "")
