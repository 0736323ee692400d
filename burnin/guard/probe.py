"""Exact tests inside a job, small and quick: what decides where a replay alone cannot.

They come with a suspicion, on the GPU in question; a failure is proof, a pass is none. The long forms are burn-in's.
"""

from typing import Any

import torch
import torch.distributed as dist

from burnin.golden import exact_magnitude, largest_integer
from burnin.guard.hashes import Hasher
from burnin.keys import derive
from burnin.seed import MAGNITUDE_MAX, fill_integers

EDGE_CUDA, EDGE_CPU = 512, 96
"""Rows, columns and terms of a product: small, because the truth is computed on the CPU while training waits."""
AT_ONCE_CUDA, AT_ONCE_CPU = 64, 1
"""Equal products at a time, so that every multiprocessor computes some tile of them: 512 of 256 x 128."""
ROUNDS_CUDA, ROUNDS_CPU = 16, 8
WORDS = 1 << 14
"""Elements that each rank sends to each other one."""
SHARE = 0.5
"""Of the deadline: so long is a transfer waited for, while other ranks already wait to hear how it went."""


def products_are_exact(device: torch.device, seed: int) -> bool:
    """Whether integer products on a device are what they must be, in every round.

    Truth: the same integers in float64 on the CPU, where all sums are exact in any order. About 0.1 s.
    """
    cuda = device.type == "cuda"
    edge, rounds = (EDGE_CUDA, ROUNDS_CUDA) if cuda else (EDGE_CPU, ROUNDS_CPU)
    at_once = AT_ONCE_CUDA if cuda else AT_ONCE_CPU
    dtypes = (torch.bfloat16, torch.float16, torch.float32) if cuda else (torch.float32,)
    for dtype in dtypes:
        # The result is rounded to the dtype: all sums must be exact there, too.
        bits = {torch.float32: 24, torch.float16: 11, torch.bfloat16: 8}[dtype]
        terms = edge if dtype is torch.float32 else min(edge, largest_integer(dtype) // 2)
        magnitude = exact_magnitude(dtype, terms, accumulator_bits=bits)
        a, b = (torch.empty(shape, dtype=dtype, device="cpu") for shape in ((edge, terms), (terms, edge)))
        fill_integers(a, derive(seed, "a"), magnitude)
        fill_integers(b, derive(seed, "b"), magnitude)
        truth = (a.to(torch.float64) @ b.to(torch.float64)).to(dtype).to(device)
        there_a, there_b = a.to(device).expand(at_once, -1, -1), b.to(device).expand(at_once, -1, -1)
        wrong = torch.zeros(1, dtype=torch.int64, device=device)
        for _ in range(rounds):
            wrong += (torch.bmm(there_a, there_b) != truth).sum()  # a NaN is unequal, too
        if int(wrong):
            return False
    return True


class Transfers:
    """One exchange of known integers between all ranks, straight from rank to rank; every rank makes one.

    In phases, so that ranks can agree between them: an error in one leaves no other rank waiting in a collective.
    """

    def __init__(self, device: torch.device, seed: int, group: Any) -> None:
        """Make the messages. `group`: over which they go, of all ranks."""
        self._rank, self._world = dist.get_rank(), dist.get_world_size()
        self._seed, self._group = seed, group
        self._sent = torch.cat([self._message(self._rank, target) for target in range(self._world)]).to(device)
        self._got = torch.empty_like(self._sent)
        self._work: Any = None

    def launch(self) -> None:
        """Begin the exchange, all of it in one collective; nothing is waited for on a GPU."""
        self._work = dist.all_to_all_single(self._got, self._sent, group=self._group, async_op=True)

    def finish(self, hasher: Hasher) -> list[int]:
        """Wait, and return the ranks whose data arrived wrong here. Raises LateError; gloo raises RuntimeError."""
        if self._got.is_cuda:
            hasher.wait_until(self._work.is_completed, "a transfer between ranks has not finished", share=SHARE)
        self._work.wait()
        parts = self._got.cpu().chunk(self._world)
        return [source for source, part in enumerate(parts) if not torch.equal(part, self._message(source, self._rank))]

    def _message(self, source: int, target: int) -> torch.Tensor:
        made = torch.empty(WORDS, dtype=torch.float32, device="cpu")
        fill_integers(made, derive(self._seed, "transfer", source, target), MAGNITUDE_MAX)
        return made
