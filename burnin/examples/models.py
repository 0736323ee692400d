"""Two small models with learnable data made from a seed: a GPT, and a DLRM with embedding bags."""

import math
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import nn
from torch.nn import functional

Batch = dict[str, torch.Tensor]


class Task(Protocol):
    """A model with its data."""

    def model(self) -> nn.Module:
        """Make it, with the same parameters on every rank."""

    def batch(self, stream: torch.Generator) -> Batch:
        """Draw a micro-batch."""

    def loss(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        """Compute the loss."""

    def normalised_entropy(self, loss: float, batch: Batch) -> float | None:
        """The loss over that of a model that knows only the base rate; None where it is not the custom."""


class Block(nn.Module):
    """One transformer layer."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self._heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, tokens, width) → the same."""
        batch, tokens, width = x.shape
        parts = self.qkv(self.norm1(x)).view(batch, tokens, 3, self._heads, width // self._heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(mixed.transpose(1, 2).reshape(batch, tokens, width))
        hidden: torch.Tensor = x + self.down(functional.gelu(self.up(self.norm2(x))))
        return hidden


class Gpt(nn.Module):
    """A decoder."""

    def __init__(self, *, vocabulary: int, width: int, heads: int, layers: int, tokens: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(tokens, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Token ids (batch, tokens) → logits (batch, tokens, vocabulary)."""
        x = self.tokens(ids) + self.places.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits: torch.Tensor = self.head(self.norm(x))
        return logits


@dataclass(frozen=True, slots=True, kw_only=True)
class GptTask:
    """Predict the next token of sequences in which each token follows from the two before it."""

    seed: int
    vocabulary: int = 32
    tokens: int = 16
    size: int = 4

    def model(self) -> nn.Module:
        """See `Task`."""
        torch.manual_seed(self.seed)
        return Gpt(vocabulary=self.vocabulary, width=32, heads=2, layers=2, tokens=self.tokens)

    def batch(self, stream: torch.Generator) -> Batch:
        """See `Task`."""
        ids = torch.randint(self.vocabulary, (self.size, self.tokens + 1), generator=stream)
        for place in range(2, self.tokens + 1):
            ids[:, place] = (ids[:, place - 1] + 3 * ids[:, place - 2] + 1) % self.vocabulary
        return {"ids": ids[:, :-1].contiguous(), "next": ids[:, 1:].contiguous()}

    def loss(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        """See `Task`."""
        return functional.cross_entropy(model(batch["ids"]).flatten(0, 1), batch["next"].flatten())

    def normalised_entropy(self, loss: float, batch: Batch) -> float | None:
        """See `Task`."""
        del loss, batch
        return None


class Dlrm(nn.Module):
    """Embedding bags, pairwise interaction, two small networks."""

    def __init__(self, *, tables: int, rows: int, width: int, dense: int) -> None:
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables))
        self.bottom = nn.Sequential(nn.Linear(dense, 32), nn.ReLU(), nn.Linear(32, width), nn.ReLU())
        pairs = (tables + 1) * tables // 2
        self.top = nn.Sequential(nn.Linear(pairs + width, 32), nn.ReLU(), nn.Linear(32, 1))
        self.register_buffer("pairs", torch.tril_indices(tables + 1, tables + 1, -1), persistent=False)

    def forward(self, dense: torch.Tensor, bags: torch.Tensor) -> torch.Tensor:
        """Dense features (batch, dense) and ids (tables, batch, ids of a bag) → logits (batch,)."""
        bottom = self.bottom(dense)
        sides = torch.stack([bottom, *(bag(ids) for bag, ids in zip(self.bags, bags, strict=True))], dim=1)
        products = sides @ sides.transpose(1, 2)
        pairs: Any = self.pairs
        logits: torch.Tensor = self.top(torch.cat([bottom, products[:, pairs[0], pairs[1]]], dim=1)).squeeze(1)
        return logits


@dataclass(frozen=True, slots=True, kw_only=True)
class DlrmTask:
    """Predict clicks that depend on the dense features and on the ids."""

    seed: int
    tables: int = 4
    rows: int = 200
    dense: int = 8
    size: int = 64

    def model(self) -> nn.Module:
        """See `Task`."""
        torch.manual_seed(self.seed)
        return Dlrm(tables=self.tables, rows=self.rows, width=8, dense=self.dense)

    def batch(self, stream: torch.Generator) -> Batch:
        """See `Task`."""
        dense = torch.randn(self.size, self.dense, generator=stream)
        # Popular ids are drawn often, as in production: a power law.
        uniform = torch.rand(self.tables, self.size, 5, generator=stream)
        bags = (self.rows * uniform**3).long()
        score = dense.sum(1) + ((bags[0].sum(1) % 3) - 1).float() * 2 - 1
        return {"dense": dense, "bags": bags, "click": (score > 0).float()}

    def loss(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        """See `Task`."""
        return functional.binary_cross_entropy_with_logits(model(batch["dense"], batch["bags"]), batch["click"])

    def normalised_entropy(self, loss: float, batch: Batch) -> float | None:
        """See `Task`."""
        rate = min(max(float(batch["click"].mean()), 1e-6), 1 - 1e-6)
        return loss / -(rate * math.log(rate) + (1 - rate) * math.log(1 - rate))
