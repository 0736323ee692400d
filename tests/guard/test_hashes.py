"""Fingerprints of many tensors: the values are those of the checksum, tensor by tensor."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from burnin.checksum import checksum
from burnin.guard.hashes import Hasher, digest, local
from burnin.seed import fill_bits


def tensors() -> list[torch.Tensor | None]:
    made: list[torch.Tensor | None] = [None]
    for number, size in enumerate((0, 1, 3, 4, 5, 4096, 131_072 * 4 + 7, 4 << 17)):
        raw = torch.empty(size, dtype=torch.uint8)
        fill_bits(raw, number)
        made.append(raw)
    made.append(torch.arange(12.0).view(3, 4).t())
    made.append(torch.tensor(float("nan")))
    return made


def test_values_are_those_of_the_checksum() -> None:
    hasher = Hasher(monotonic=lambda: 0.0, deadline_s=1.0)
    want = [checksum(torch.empty(0) if one is None else one, 7) for one in tensors()]
    assert hasher.values(tensors(), 7) == want
    assert hasher.values(tensors(), 8) != want


def test_every_single_bit_of_any_tensor_changes_its_value_only() -> None:
    hasher = Hasher(monotonic=lambda: 0.0, deadline_s=1.0)
    rng = random.Random(4)  # noqa: S311
    state = [torch.randn(37, 5, generator=torch.Generator().manual_seed(n)) for n in range(6)]
    before = hasher.values(state, 1)
    for _ in range(100):
        which, where, bit = rng.randrange(6), rng.randrange(185), rng.randrange(32)
        word = state[which].view(-1).view(torch.int32)
        word[where] ^= -(1 << 31) if bit == 31 else 1 << bit
        after = hasher.values(state, 1)
        assert [n for n in range(6) if before[n] != after[n]] == [which]
        before = after


def test_what_is_pending_is_read_once_for_all_and_then_holds_no_memory() -> None:
    hasher = Hasher(monotonic=lambda: 0.0, deadline_s=1.0)
    one, other, none = hasher.begin(tensors(), 7), hasher.begin([torch.ones(3)], 7), hasher.begin([], 7)
    assert [len(pending) for pending in (one, other, none)] == [len(tensors()), 1, 0]
    with pytest.raises(RuntimeError, match="read before"):
        _ = one.values
    assert hasher.read([other, none, one]) == [*other.values, *one.values]
    assert (one.parts, other.parts) == ([], [])
    assert hasher.read([one]) == hasher.values(tensors(), 7)


def test_what_has_no_plain_bytes_is_refused() -> None:
    hasher = Hasher(monotonic=lambda: 0.0, deadline_s=1.0)
    with pytest.raises(TypeError, match="dense"):
        hasher.begin([torch.ones(2, 2).to_sparse()], 7)


def test_bytes_are_those_of_the_values_and_not_of_the_memory_behind_them() -> None:
    hasher = Hasher(monotonic=lambda: 0.0, deadline_s=1.0)
    z = torch.tensor([1 + 2j, 3 - 4j])
    views = [z.conj(), z.conj().imag, torch.arange(6.0).view(2, 3).t(), torch.ones(3).expand(2, 3)]
    plain = [view.resolve_conj().resolve_neg().contiguous().clone() for view in views]
    assert hasher.values(views, 1) == hasher.values(plain, 1)
    assert hasher.values([torch.nn.Parameter(torch.ones(3))], 1) == hasher.values([torch.ones(3)], 1)


def test_digest_depends_on_the_order() -> None:
    assert digest([1, 2]) != digest([2, 1])
    assert 0 <= digest([1, 2]) < 1 << 63
    assert local(torch.ones(3, requires_grad=True)).requires_grad is False


INTERPRETED = """
import torch
from burnin import checksum as cs
from burnin.kernels import many
from burnin.seed import fill_bits
from burnin.keys import MASK64, derive
many.PIECE, many.BLOCK = 256, 64
plans = {}
for sizes in [(0, 1, 3, 4, 5, 1024, 1027), (256 * 4 * 9 + 2, 7, 0, 256 * 4)]:
    for shift in (0, 4, 16, 2):
        raws = []
        for number, size in enumerate(sizes):
            raw = torch.empty(size + shift, dtype=torch.uint8)
            fill_bits(raw, number)
            raws.append(raw[shift:])
        aligned = [raw.clone() if raw.data_ptr() % 4 else raw for raw in raws]
        addresses = tuple(raw.data_ptr() for raw in aligned)
        for _ in range(2):  # the second time its addresses are there already
            out = many.launch(
                addresses, sizes, key=derive(3, "checksum"), device=torch.device("cpu"), stream=0, plans=plans
            )
            got = [(v + cs.length_term(size, 3)) & MASK64 for v, size in zip(out.tolist(), sizes)]
            assert got == [cs.checksum(raw, 3) for raw in raws], (sizes, shift)
assert len(plans) == 2
print("ok")
"""


def test_the_kernel_interpreted_gives_the_same_values() -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", INTERPRETED], capture_output=True, text=True, check=False, env=environment, cwd=root
    )
    assert done.stdout == "ok\n", done.stderr
