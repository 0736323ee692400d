"""Wrong transfers in the evidence → GPUs, links, or software. Pure and torch-free; `judge` adds it to its verdict.

Results of tests over links are not votes about a chip: what arrives wrong at one GPU may have been damaged by the
sender, by a GPU that passed it on, or by a switch. So they are taken out of the votes, and the pattern of what failed
between whom decides (`burnin.verdict.pairs`).
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from burnin.spec import Ballot
from burnin.verdict.evidence import Cast, Evidence
from burnin.verdict.pairs import ALL, HOST, OWN, Edge, explain
from burnin.verdict.weigh import Weighed

LINK_TESTS = ("copy", "collective.exact", "collective.repro", "overlap.links")
CLEAN = 0
"""The fingerprint of a ballot over links in which everything that arrived is right: the same on all ranks."""
CLEAN_ENTRIES = ("distinct", "bits")
"""Entries of a trace that accuse nobody."""
DISTINCT = "distinct"
BESIDE = " beside it"
"""Ends the name of what a GPU computed beside a transfer: no partner has a part in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Linked:
    """What the tests over links say."""

    gpus: Mapping[str, str] = field(default_factory=dict)
    """GPU → why it, or what it is connected by, is bad."""
    tests: tuple[str, ...] = ()
    """Tests in which something arrived wrong."""
    doubts: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    """GPU → (test, why it cannot be judged)."""
    configuration: Mapping[str, str] = field(default_factory=dict)
    """Test → why no single GPU or link can be what failed."""
    nondeterministic: Mapping[str, str] = field(default_factory=dict)
    """Test → what differed between equal collectives without being wrong: recorded, never held against a GPU."""


def bounded(ballot: Ballot) -> bool:
    """Whether a ballot is about floats over links: whatever lies inside the bound of any order is right there."""
    return any(name == DISTINCT for name, _ in ballot.trace)


def without_links(weighed: Weighed) -> Weighed:
    """What is left for the votes about chips."""
    return replace(
        weighed,
        rounds=tuple(one for one in weighed.rounds if one.test not in LINK_TESTS),
        wrongs=tuple(wrong for wrong in weighed.wrongs if wrong.test not in LINK_TESTS),
        configuration={test: why for test, why in weighed.configuration.items() if test not in LINK_TESTS},
    )


def linked(evidence: Evidence) -> Linked:
    """Attribute everything that arrived wrong."""
    ranks = {device.gpu: rank for rank, device in enumerate(evidence.devices)}
    seen: dict[Edge, list[Cast]] = defaultdict(list)
    for cast in evidence.casts:
        if cast.test in LINK_TESTS:
            for edge in _edges(cast, ranks[cast.gpu], len(ranks)):
                seen[edge].append(cast)
    recorded = _nondeterministic(evidence)
    if not seen:
        return Linked(nondeterministic=recorded)
    found = explain(seen, len(ranks))
    names = {rank: f"GPU {device.index}" for rank, device in enumerate(evidence.devices)}
    ids = {rank: gpu for gpu, rank in ranks.items()}
    gpus: dict[str, str] = {}
    for rank in found.endpoints:
        gpus[ids[rank]] = f"{_told(seen, rank, names)}: this GPU, or what connects it"
    for source, destination in found.links:
        why = f"{_case(seen[source, destination])}: what {names[source]} sends to {names[destination]} arrives damaged"
        for rank in (source, destination):
            gpus.setdefault(ids[rank], f"{why}: the link between them, or either end of it")
    tests = tuple(dict.fromkeys(cast.test for casts in seen.values() for cast in casts))
    doubts = {ids[rank]: ((tests[0], "transfers fail in a pattern that fits several GPUs"),) for rank in found.unclear}
    configuration: dict[str, str] = {}
    if found.everyone:
        why = "transfers fail between most pairs of GPUs at once: look at the IOMMU, ACS and the driver"
        configuration[tests[0]] = why
    elif not gpus and not doubts:
        configuration = _shared(found.shared, seen, len(ranks))
    return Linked(gpus=gpus, tests=tests, doubts=doubts, configuration=configuration, nondeterministic=recorded)


def _edges(cast: Cast, rank: int, ranks: int) -> set[Edge]:
    """The wrong transfers that one ballot tells of."""
    found = set()
    for name, _ in cast.ballot.trace:
        if name.startswith("from +"):
            found.add(((rank + int(name.removeprefix("from +"))) % ranks, rank))
        elif name == "from host":
            found.add((HOST, rank))
        elif name == "to host":
            found.add((rank, HOST))
        elif name.endswith(BESIDE):
            found.add((OWN, rank))
        elif name not in CLEAN_ENTRIES:
            found.add((ALL, rank))
    if not found and any(int(fingerprint, 16) != CLEAN for fingerprint, _ in cast.ballot.fingerprints):
        found.add((ALL, rank))
    return found


def _case(casts: list[Cast]) -> str:
    return f"{casts[0].test} {casts[0].ballot.case}"


def _told(seen: Mapping[Edge, list[Cast]], rank: int, names: Mapping[int, str]) -> str:
    """What was wrong at one GPU, with whom."""
    mine = {edge: casts for edge, casts in seen.items() if rank in edge}
    partners = sorted({one for edge in mine for one in edge if one != rank})
    told = {HOST: "the host", ALL: "all GPUs together", OWN: "what it computes meanwhile"} | dict(names)
    return f"{_case(next(iter(mine.values())))}: wrong with {', '.join(told[one] for one in partners)}"


def _shared(partners: tuple[int, ...], seen: Mapping[Edge, list[Cast]], ranks: int) -> dict[str, str]:
    """Test → why several GPUs that are wrong at once blame none of them."""
    found: dict[str, str] = {}
    for partner in partners:
        casts = [cast for edge, several in seen.items() if partner in edge for cast in several]
        gpus = {cast.gpu for cast in casts}
        if partner == HOST:
            why = f"copies between the host and {len(gpus)} of {ranks} GPUs fail: the host's memory or its bus"
        elif partner == OWN:
            why = f"what {len(gpus)} of {ranks} GPUs compute beside it is not what they give alone: the library"
        else:
            first = [cast.ballot for cast in casts if cast.ballot.case == casts[0].ballot.case]
            alike = len({(ballot.seed, ballot.fingerprints) for ballot in first}) == len({b.seed for b in first})
            where = "what reduces for all of them (the switch, or one rank's part)" if alike else "no pair is named"
            how = "alike" if alike else "at once"
            why = f"wrong on {len(gpus)} of {ranks} GPUs {how}: {where}, or the library"
        found[casts[0].test] = f"{_case(casts)}: {why}"
    return found


def _nondeterministic(evidence: Evidence) -> dict[str, str]:
    """Float collectives that gave different bits on the same inputs, and stayed inside the bound of any order."""
    found: dict[str, str] = {}
    for cast in evidence.casts:
        distinct = int(dict(cast.ballot.trace).get(DISTINCT, "1")) if cast.test in LINK_TESTS else 1
        if distinct > 1:
            launches = cast.ballot.launches
            why = f"{cast.ballot.case}: {distinct} different results in {launches} equal launches, within the bound"
            found.setdefault(cast.test, why)
    return found
