"""On a real GPU: fingerprints of many tensors are the CPU's, and a guarded GPT is checked without a false alarm."""

import os
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import pytest
import torch
from torch.nn import functional

from burnin.checksum import checksum
from burnin.examples.models import Gpt
from burnin.guard import GuardConfig, ReplayGuard
from burnin.guard.hashes import Hasher
from burnin.kernels.many import PIECE
from burnin.seed import fill_bits

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]
SIZES = (0, 1, 3, 4, 5, 15, 16, 17, 4 * PIECE - 1, 4 * PIECE, 4 * PIECE + 1, 12 * PIECE + 6, 1 << 26)


@pytest.mark.parametrize("offset", [0, 1, 2, 4, 8, 16])
def test_fingerprints_of_many_tensors_are_those_of_the_cpu(offset: int) -> None:
    hasher = Hasher(monotonic=time.monotonic, deadline_s=30.0)
    here: list[torch.Tensor | None] = [None]
    for number, size in enumerate(SIZES):
        raw = torch.empty(size + offset, dtype=torch.uint8)
        fill_bits(raw, number)
        here.append(raw)
    there = [None if one is None else one.cuda()[offset:] for one in here]
    there.append(torch.arange(6.0, device="cuda").view(2, 3).t())
    there.append(torch.tensor(3.0))  # optimizers keep step counts on the CPU
    want = [checksum(torch.empty(0) if one is None else one.cpu().contiguous(), 7) for one in there]
    for _ in range(3):  # the plan is made once, pinned memory is used again
        assert hasher.values(there, 7) == want
    assert hasher.values(there, 8) != want


def train(steps: int, *, steady: bool) -> ReplayGuard:
    torch.manual_seed(1)
    model = Gpt(vocabulary=512, width=256, heads=4, layers=3, tokens=128).to("cuda", torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    guard = ReplayGuard(model, optimizer, config=GuardConfig(every=3, peer_every=3, steady=steady))

    def fn(ids: torch.Tensor) -> torch.Tensor:
        logits = model(ids[:, :-1])
        loss = functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        return loss.detach()

    for _ in range(steps):
        optimizer.zero_grad(set_to_none=True)
        guard.step(fn, torch.randint(512, (4, 129), device="cuda"))
        optimizer.step()
    return guard


@pytest.mark.parametrize("steady", [False, True])
def test_a_guarded_gpt_is_checked_without_a_false_alarm(steady: bool) -> None:
    guard = train(60, steady=steady)
    report = guard.report()
    assert report["findings"] == []
    assert report["unchecked"] == {}
    assert report["verified_steps"] >= 18
    if steady:
        assert report["calibration"]["share"] == 1, guard.report_text()
