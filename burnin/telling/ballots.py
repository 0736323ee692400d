"""What a whole host says in votes across hosts: the results that all its GPUs computed alike on inputs shared by all.

A host whose GPUs are wrong in the same way (a bad library, a bad firmware) is unanimous by itself; only other hosts of
the same vote key show it. One round of each float test therefore uses a seed that every run of every host shares.
"""

from burnin.session import common_seed
from burnin.verdict.evidence import Evidence
from burnin.verdict.weigh import rounds, vote_of

BALLOTS_MAX = 64
"""More are left out: a level has a few float cases, and a host seldom two vote keys."""


def host_ballots(evidence: Evidence) -> list[dict[str, str]]:
    """Return [{key, fingerprint}], in the order of the rounds; nothing for a round whose GPUs do not all agree.

    The key is equal where the fingerprints must be: vote key (SKU, libraries, kernels, driver, …), test and case.
    """
    keys = {device.gpu: device.vote_key for device in evidence.devices}
    ballots = []
    for one in rounds(evidence):
        said = {vote_of(gpu, ballot) for gpu, ballot in one.ballots.items()}
        steady = all(len(ballot.fingerprints) == 1 for ballot in one.ballots.values())
        if one.retest or one.exact or one.seed != common_seed(one.test) or len(said) != 1 or not steady:
            continue
        vote_key = keys[min(one.ballots)]
        ballots.append({"key": f"{vote_key}/{one.test}/{one.case}", "fingerprint": said.pop()})
    return ballots[:BALLOTS_MAX]
