"""Which link or which GPU explains the transfers that went wrong. Pure and torch-free; `links` reads evidence.

Wrong transfers are edges between partners. Real partners are GPUs; `HOST` is the host's memory, `ALL` stands for what a
reduction or a routed transfer brought from everywhere, and `OWN` for what a GPU computes beside its transfers. These
are partners, but nobody to blame: what many GPUs have wrong in common with one of them is the host, the switch or the
software.
"""

from collections.abc import Iterable
from dataclasses import dataclass

HOST, ALL, OWN = -1, -2, -3
"""Partners that are no GPU."""
MIN_PARTNERS = 2
"""Partners that must fail with one GPU before it, and not its link to one of them, is the explanation."""

Edge = tuple[int, int]
"""(source, destination) of a transfer that arrived damaged; a GPU is its rank, 0 …."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What the wrong transfers come from."""

    endpoints: tuple[int, ...] = ()
    """GPUs that are wrong with several partners."""
    links: tuple[Edge, ...] = ()
    """Transfers that nothing but the way between two GPUs (or either end of it) explains; both ends are GPUs."""
    shared: tuple[int, ...] = ()
    """`HOST`, `ALL` or `OWN` where several GPUs have only that in common."""
    unclear: tuple[int, ...] = ()
    """GPUs of which some are bad, but the transfers do not say which."""
    everyone: bool = False
    """Whether most pairs of at least three GPUs fail: peers do not break all at once, a driver or an IOMMU does."""


def explain(wrong: Iterable[Edge], ranks: int) -> Explanation:
    """Explain wrong transfers by as few culprits as can be, and by nobody where two explanations are equally good.

    The partner with the most failing partners is taken first, together with everything it explains; equals that fail
    with each other cannot be told apart. What then remains are single links.

    Args:
        wrong: edges, in any order; repeats count once.
        ranks: GPUs that take part. With two of them everything comes from the other one, so `ALL` is that one.
    """
    edges = {_two(edge) if ranks == 2 else edge for edge in wrong}  # noqa: PLR2004 - see above
    pairs = {frozenset(edge) for edge in edges if min(edge) >= 0}
    if ranks > MIN_PARTNERS and len(pairs) > ranks * (ranks - 1) // 4 and not _covered(pairs):
        return Explanation(everyone=True)
    endpoints: list[int] = []
    shared: list[int] = []
    unclear: set[int] = set()
    while True:
        partners = _partners(edges)
        most = max(map(len, partners.values()), default=0)
        if most < MIN_PARTNERS:
            break
        best = sorted(node for node, others in partners.items() if len(others) == most)
        taken = best[0] if best[0] < 0 else _alone(best, partners)
        if taken is None:
            tied = {node for node in best if partners[node] & set(best)}
            unclear |= {node for node in tied if node >= 0}
            edges = {edge for edge in edges if not tied & set(edge)}
            continue
        (endpoints if taken >= 0 else shared).append(taken)
        edges = {edge for edge in edges if taken not in edge}
    links = tuple(sorted(edge for edge in edges if min(edge) >= 0))
    # A GPU whose only failing partner is no GPU: nothing but itself and its way to the host or the switch is left.
    endpoints += [max(edge) for edge in edges if min(edge) < 0]
    return Explanation(
        endpoints=tuple(sorted(set(endpoints))),
        links=links,
        shared=tuple(sorted(shared)),
        unclear=tuple(sorted(unclear)),
    )


def _two(edge: Edge) -> Edge:
    source, destination = (1 - max(edge) if one == ALL else one for one in edge)
    return source, destination


def _partners(edges: Iterable[Edge]) -> dict[int, set[int]]:
    partners: dict[int, set[int]] = {}
    for source, destination in edges:
        partners.setdefault(source, set()).add(destination)
        partners.setdefault(destination, set()).add(source)
    return partners


def _alone(best: list[int], partners: dict[int, set[int]]) -> int | None:
    """The first of equals that fails with none of the others."""
    return next((node for node in best if not partners[node] & set(best)), None)


def _covered(pairs: set[frozenset[int]]) -> bool:
    """Whether one GPU is in all failing pairs."""
    return bool(frozenset.intersection(*pairs)) if pairs else True
