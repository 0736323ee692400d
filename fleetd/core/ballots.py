"""Ballots across hosts: a host whose GPUs all agree with each other and disagree with the fleet is found.

Within a host the GPUs vote (`burnin.vote`). What they agree on travels with the finding, and here the hosts vote: the
same key (kernels, libraries, part, test, seed) must give the same fingerprint everywhere.
"""

from collections.abc import Iterator, Mapping

from burnin.vote import MIN_MAJORITY
from fleetd.core.fleet import Fleet, Votes
from fleetd.model.event import Outvoted
from fleetd.model.finding import Ballot
from fleetd.model.ids import HostName


def majority(votes: Mapping[str, Votes]) -> str | None:
    """The fingerprint that more than half of the hosts, and at least `MIN_MAJORITY`, computed; None without one."""
    total = sum(v.total for v in votes.values())
    return next((f for f, v in sorted(votes.items()) if v.total >= MIN_MAJORITY and 2 * v.total > total), None)


def count(fleet: Fleet, host: HostName, old: tuple[Ballot, ...], new: tuple[Ballot, ...]) -> Iterator[Outvoted]:
    """Who is outvoted when a host's ballots replace its old ones: the host itself, or others that it overrules."""
    before = {ballot.key: ballot.fingerprint for ballot in old}
    for ballot in new:
        votes = {f: v.total for f, v in fleet.votes(ballot.key).items()}
        if ballot.key in before:
            votes[before[ballot.key]] -= 1
        votes[ballot.fingerprint] = votes.get(ballot.fingerprint, 0) + 1
        counted = {f: Votes(total=total) for f, total in votes.items()}
        right = majority(counted)
        if right is None:
            continue
        said = f"{votes[right]} of {sum(votes.values())} hosts agree on ballot {ballot.key} and it does not"
        if ballot.fingerprint != right:
            yield Outvoted(host=host, key=ballot.key, why=said)
        for fingerprint, vote in sorted(fleet.votes(ballot.key).items()):
            for other in vote.hosts if fingerprint != right else ():
                if other != host:
                    yield Outvoted(host=other, key=ballot.key, why=said)
