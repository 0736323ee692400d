"""Operations that may give other results for the same inputs, as data, and when.

Source of the table: the documentation of `torch.use_deterministic_algorithms` (both of its lists), for convolutions
that of cuDNN on reproducibility (its backward routines only), for attention the note on `scaled_dot_product_attention`
and measurement: on an H200 the backward pass of the flash, memory-efficient and cuDNN kernels differs from run to run,
strict deterministic algorithms cure the first two, `warn_only=True` cures none.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch


def _floats(args: Sequence[Any]) -> bool:
    return isinstance(args[0], torch.Tensor) and (args[0].is_floating_point() or args[0].is_complex())


def _weighs(args: Sequence[Any]) -> bool:
    return len(args) > 1 and args[1] is not None


def _adds_or_overlaps(args: Sequence[Any]) -> bool:
    """`index_put`: places that occur twice. One value for all, or a mask for an index, leaves no order to differ."""
    masks = all(one is None or one.dtype is torch.bool for one in args[1])
    return not masks and (_accumulates(args) or args[2].numel() > 1)


def _accumulates(args: Sequence[Any]) -> bool:
    return len(args) > 3 and bool(args[3])  # noqa: PLR2004 - (self, indices, values, accumulate)


def _overwrites_or_cpu(args: Sequence[Any]) -> bool:
    """On a GPU `index_put` sorts before it accumulates; on a CPU threads add in any order."""
    if not _adds_or_overlaps(args):
        return False
    return not _accumulates(args) if args[0].is_cuda else torch.get_num_threads() > 1


def _by_maximum(args: Sequence[Any]) -> bool:
    return len(args) > 7 and args[7] == 2  # noqa: PLR2004 - `mode` of EmbeddingBag, 2: maximum


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Operations of one kind."""

    names: tuple[str, ...]
    """Of `aten`, without overload; a `*` at the end stands for anything."""
    cured: bool
    """Whether `torch.use_deterministic_algorithms(True)`, strict, chooses another kernel (or refuses to run)."""
    cpu: bool = False
    """Whether it is so on a CPU, too; on CUDA and ROCm devices it is always."""
    when: Callable[[Sequence[Any]], bool] = lambda _: True
    """Of its positional arguments."""
    flag: Callable[[], bool] = lambda: False
    """Another setting that cures it."""


SOURCES = (
    Source(
        names=("_scaled_dot_product_cudnn_attention_backward", "_cudnn_attention_backward"),
        cured=False,
    ),
    Source(
        names=(
            *("_scaled_dot_product_flash_attention_backward", "_flash_attention_backward"),
            *("_scaled_dot_product_efficient_attention_backward", "_efficient_attention_backward"),
            "_scaled_dot_product_fused_attention_overrideable_backward",
        ),
        cured=True,
    ),
    Source(
        names=("convolution_backward", "cudnn_convolution*backward*", "miopen_convolution*backward*"),
        cured=True,
        flag=lambda: torch.backends.cudnn.deterministic,
    ),
    Source(
        names=("scatter_add", "scatter_add_", "scatter_reduce", "scatter_reduce_", "scatter", "scatter_"), cured=True
    ),
    Source(names=("index_add", "index_add_", "index_reduce", "index_reduce_"), cured=True),
    Source(names=("index_copy", "index_copy_"), cured=True, cpu=True),
    Source(
        names=("index_put", "index_put_", "_index_put_impl_", "_unsafe_index_put"),
        cured=True,
        cpu=True,
        when=_overwrites_or_cpu,
    ),
    Source(names=("put", "put_"), cured=True, cpu=True),
    Source(names=("_embedding_bag_dense_backward",), cured=True, when=_by_maximum),
    Source(names=("cumsum", "cumsum_", "histc"), cured=True, when=_floats),
    Source(names=("bincount",), cured=True, when=_weighs),
    Source(names=("median", "nanmedian"), cured=True),
    Source(
        names=(
            *("replication_pad*_backward", "reflection_pad*_backward", "grid_sampler*_backward", "_ctc_loss_backward"),
            *("upsample_linear*_backward", "upsample_bilinear*_backward", "_upsample_bilinear*_backward"),
            *("upsample_bicubic*_backward", "_upsample_bicubic*_backward", "upsample_trilinear*_backward"),
            *("avg_pool3d_backward", "_adaptive_avg_pool2d_backward", "_adaptive_avg_pool3d_backward"),
            *("adaptive_max_pool2d_backward", "fractional_max_pool*_backward", "max_pool3d_with_indices_backward"),
            *("max_unpool*", "nll_loss2d_forward"),
        ),
        cured=True,
    ),
)
"""The table; the first row that fits counts."""


def is_source(name: str, args: Sequence[Any], *, cuda: bool, strict: bool) -> bool:
    """Whether an operation may give another result for the same inputs, as documented.

    Args:
        name: of `aten`, without overload.
        args: positional.
        cuda: whether it works on a GPU.
        strict: whether deterministic algorithms are in force, see `strictly`.
    """
    for one in SOURCES:
        if any(_fits(pattern, name) for pattern in one.names):
            return (cuda or one.cpu) and not (one.cured and strict) and not one.flag() and one.when(args)
    return False


def named(name: str) -> bool:
    """Whether an operation of `aten` is in the table, whatever its arguments."""
    return any(_fits(pattern, name) for one in SOURCES for pattern in one.names)


def strictly() -> bool:
    """Whether `torch.use_deterministic_algorithms(True)` is in force; with `warn_only` it changes no kernel."""
    return torch.are_deterministic_algorithms_enabled() and not torch.is_deterministic_algorithms_warn_only_enabled()


def _fits(pattern: str, name: str) -> bool:
    if "*" not in pattern:
        return pattern == name
    first, *rest = pattern.split("*")
    if not name.startswith(first):
        return False
    at = len(first)
    for part in rest:
        at = name.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return True
