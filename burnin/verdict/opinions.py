"""The second opinion: whether a GPU that is alone on its host can be told from the CPU that accuses it. Pure.

Several GPUs vote on whether the CPU can be believed (`witness`). One GPU has nobody: a core that miscounts would
cost a healthy GPU its place. So what accuses it is checked again on two cores, each alone, and counts when both agree.
Nothing is asked as long as the GPU is right. A process that may use one core only goes without.
"""

import random
from collections.abc import Collection

from burnin.verdict.evidence import Evidence, Shown

WITNESSES = 2
"""Cores that must accuse a GPU that is alone."""
INPUTS_MAX = 3
"""Inputs of a test that are checked again: a fault that comes and goes may be away in one."""


def believable(evidence: Evidence) -> bool:
    """Whether goldens count against a GPU: there are others to contradict them, or two cores say the same."""
    if len(evidence.devices) != 1 or len(evidence.cores) < WITNESSES:
        return True
    accusing = {
        shown.proof.core for shown in evidence.proofs if shown.proof.core is not None and _accuses(evidence, shown)
    }
    return len(accusing) >= WITNESSES


def _accuses(evidence: Evidence, shown: Shown) -> bool:
    """Whether a proof says that something this GPU computed is wrong."""
    right = shown.proof.fingerprint
    if right is None:
        return True
    said = {
        fingerprint
        for cast in evidence.casts
        if (cast.gpu, cast.test, cast.ballot.case, cast.ballot.seed)
        == (shown.gpu, shown.test, shown.proof.case, shown.proof.seed)
        for fingerprint, _ in cast.ballot.fingerprints
    }
    return bool(said - {right})


def witnesses(allowed: Collection[int], *, seed: int) -> tuple[int, ...]:
    """Choose the cores that are asked, of those that this process may use; none when there are too few."""
    if len(allowed) < WITNESSES:
        return ()
    return tuple(random.Random(seed).sample(sorted(allowed), WITNESSES))  # noqa: S311 - can be repeated, no secret
