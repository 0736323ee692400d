"""Results that break a bound: which of them speak against a GPU, and which against the library. Pure and torch-free.

A bound that holds for every right result, whatever the order of its sums, needs no vote. It is computed with the
result, on the GPU; a wrong bound is the GPU's fault as well. But a library can be wrong, too: then most GPUs break it.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from burnin.verdict.evidence import Evidence

Key = tuple[str, str, int, int, bool]
"""(test, case, iteration, seed, retest)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beyond:
    """What is outside of its bound."""

    gpus: frozenset[tuple[Key, str]]
    """(where, GPU) that broke a bound when most others kept it, or when it computed alone."""
    software: frozenset[Key]
    """Where most GPUs, or all of a vote key, broke it at once: the library or the build is wrong."""
    configuration: Mapping[str, str]
    """Test → why."""
    alone: Mapping[str, frozenset[str]]
    """Test → the GPU that computed alone and broke the bound in every launch: nothing here shows that the library
    can keep it."""


def outside(evidence: Evidence) -> Beyond:
    """Find what is outside of its bound. GPUs are compared across vote keys: a bound means the same on all of them."""
    keys = {device.gpu: device.vote_key for device in evidence.devices}
    broke: dict[Key, dict[str, bool]] = defaultdict(dict)
    inside: set[str] = set()
    computed: dict[str, set[str]] = defaultdict(set)
    for cast in evidence.casts:
        ballot = cast.ballot
        key = (cast.test, ballot.case, ballot.iteration, ballot.seed, cast.retest)
        broke[key][cast.gpu] = ballot.outside > 0
        computed[cast.test].add(cast.gpu)
        if ballot.outside < ballot.launches:
            inside.add(cast.test)
    gpus: set[tuple[Key, str]] = set()
    software: set[Key] = set()
    configuration: dict[str, str] = {}
    for key, said in broke.items():
        bad = {gpu for gpu, beyond in said.items() if beyond}
        if bad and _shared(bad, said, keys):
            software.add(key)
            why = f"{key[1]}: {len(bad)} of {len(said)} GPUs are outside of the bound of right results"
            configuration.setdefault(key[0], why)
        else:
            gpus |= {(key, gpu) for gpu in bad}
    alone = {test: frozenset(who) for test, who in computed.items() if len(who) == 1 and test not in inside}
    return Beyond(gpus=frozenset(gpus), software=frozenset(software), configuration=configuration, alone=alone)


def _shared(bad: set[str], said: Mapping[str, bool], keys: Mapping[str, str]) -> bool:
    """Whether GPUs broke the bound that have a cause in common: most of them, or all of one kind among several."""
    if len(bad) < 2:  # noqa: PLR2004 - one GPU has nothing in common with others
        return False
    sizes, inside = Counter(keys[gpu] for gpu in said), Counter(keys[gpu] for gpu in bad)
    whole = len(sizes) > 1 and all(count == sizes[key] > 1 for key, count in inside.items())
    return 2 * len(bad) > len(said) or whole
