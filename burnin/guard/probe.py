"""Exact tests inside a job, small and quick: what decides where a replay alone cannot.

They come with a suspicion, on the GPU in question; a failure is proof, a pass is none. The long forms are burn-in's.
"""

from collections.abc import Sequence

import torch
import torch.distributed as dist

from burnin.golden import exact_magnitude, largest_integer
from burnin.seed import MAGNITUDE_MAX, fill_integers
from burnin.words import derive

EDGE_CUDA, EDGE_CPU = 1024, 96
"""Rows, columns and terms of a product: small, because the truth is computed on the CPU."""
AT_ONCE_CUDA, AT_ONCE_CPU = 16, 1
"""Equal products at a time, so that every multiprocessor computes some tile of them."""
ROUNDS_CUDA, ROUNDS_CPU = 16, 8
WORDS = 1 << 12
"""Elements that each rank sends to each other one in a round."""
TRANSFER_ROUNDS = 4


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
        a, b = torch.empty(edge, terms, dtype=dtype), torch.empty(terms, edge, dtype=dtype)
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


def wrong_senders(device: torch.device, seed: int) -> list[int]:
    """Exchange known integers between all ranks of the default group; return the ranks whose data arrived wrong here.

    Every rank calls it. An all-to-all goes straight from rank to rank.
    """
    rank, world = dist.get_rank(), dist.get_world_size()
    wrong: set[int] = set()
    for number in range(TRANSFER_ROUNDS):
        sent = torch.cat([_message(seed, number, rank, target) for target in range(world)]).to(device)
        got = torch.empty_like(sent)
        dist.all_to_all_single(got, sent)
        parts: Sequence[torch.Tensor] = got.cpu().chunk(world)
        wrong |= {
            source for source, part in enumerate(parts) if not torch.equal(part, _message(seed, number, source, rank))
        }
    return sorted(wrong)


def _message(seed: int, number: int, source: int, target: int) -> torch.Tensor:
    made = torch.empty(WORDS, dtype=torch.float32)
    fill_integers(made, derive(seed, "transfer", number, source, target), MAGNITUDE_MAX)
    return made
