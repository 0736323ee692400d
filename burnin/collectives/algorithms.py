"""Which algorithms and protocols the collectives are swept through, and how a library is told. Torch-free.

A library reads its settings when it starts, so each algorithm is a job of its own: new processes, new connections.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """Settings of one job."""

    env: Mapping[str, str] = field(default_factory=dict)
    ops: tuple[str, ...] = ()
    """Operations that have this algorithm; empty: all."""


LOOPBACK = {"NCCL_SOCKET_IFNAME": "lo", "GLOO_SOCKET_IFNAME": "lo", "NCCL_NVLS_ENABLE": "0"}
"""For every job. One host talks to itself only. Reduction in the switch (NVLS) stays off: its bf16 results depend on
what was allocated before, which no exact test can tell from a fault, and the multicast objects that it takes in the
fabric are shared with every other job on the host: a program that ends badly can leave them unusable for all."""

_RING = {"NCCL_ALGO": "Ring"}
_TREE = {"NCCL_ALGO": "Tree"}

ALGORITHMS: Mapping[str, Mapping[str, Algorithm]] = {
    "cuda": {
        "default": Algorithm(),
        "ring-simple": Algorithm(env={**_RING, "NCCL_PROTO": "Simple"}),
        "ring-ll": Algorithm(env={**_RING, "NCCL_PROTO": "LL"}),
        "ring-ll128": Algorithm(env={**_RING, "NCCL_PROTO": "LL128"}),
        # A tree exists for all-reduce only; asked for another operation, the library refuses to start it.
        "tree-simple": Algorithm(env={**_TREE, "NCCL_PROTO": "Simple"}, ops=("all-reduce",)),
        "tree-ll128": Algorithm(env={**_TREE, "NCCL_PROTO": "LL128"}, ops=("all-reduce",)),
    },
    "cpu": {"gloo": Algorithm()},
    "sim": {"simulated": Algorithm()},
}
"""Backend → name → settings. The first of a backend is the library's own choice and runs every operation and dtype."""


def algorithm_of(case: str, backend: str) -> str:
    """The algorithm of a case: the last word of its name; what names none (copies) runs with the first."""
    last = case.rpartition(" ")[2]
    known = ALGORITHMS[backend]
    return last if last in known else next(iter(known))
