"""What makes a training step reproducible, and which operation needs it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What to set for an operation."""

    pattern: str
    """Part of the operation's name."""
    say: str


_STRICT = "torch.use_deterministic_algorithms(True), strict: warn_only=True does not change the kernel"

ADVICE = (
    Advice(
        pattern="cudnn_attention",
        say="the cuDNN attention has no deterministic backward pass: torch.backends.cuda.enable_cudnn_sdp(False), and "
        + _STRICT,
    ),
    Advice(pattern="flash_attention", say=_STRICT),
    Advice(pattern="efficient_attention", say=_STRICT),
    Advice(
        pattern="convolution",
        say="torch.backends.cudnn.deterministic = True and torch.backends.cudnn.benchmark = False",
    ),
    Advice(pattern="index_add", say=f"atomic additions: {_STRICT}"),
    Advice(pattern="scatter", say=f"atomic additions: {_STRICT}"),
    Advice(pattern="index_put", say=f"atomic additions: {_STRICT}"),
    Advice(pattern="embedding", say=f"atomic additions: {_STRICT}"),
    Advice(
        pattern="cumsum",
        say="no deterministic form on a GPU: add up integers or on the CPU, or leave what comes after it unchecked",
    ),
    *(
        Advice(pattern=pattern, say="no deterministic form on a GPU: use another operation, or leave it unchecked")
        for pattern in ("pool", "unpool", "upsample", "pad", "grid_sampler", "nll_loss2d", "ctc_loss")
    ),
    Advice(pattern="rand", say="random numbers from a generator that the guard does not know: use torch's default one"),
    Advice(pattern="bernoulli", say="random numbers from a generator that the guard does not know"),
)
"""In order: the first that fits counts."""

_UNKNOWN = "not known; `fleetd guard bisect` names the operation, deterministic_settings() may help"


def advice(operation: str | None) -> str:
    """Return what to set for an operation, named as torch names it; None: the operation is not known."""
    if operation is not None:
        for one in ADVICE:
            if one.pattern in operation:
                return one.say
    return _UNKNOWN


def deterministic_settings() -> str:
    """Return the lines to put at the beginning of a training program.

    On an H200 strict deterministic flash attention costs about 1.27 of the default's time (forward and backward).
    """
    return """\
import os
os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"   # before CUDA is initialised
import torch
torch.use_deterministic_algorithms(True)            # strict: warn_only=True does not change the kernels
torch.backends.cudnn.benchmark = False
torch.backends.cudnn.deterministic = True
torch.backends.cuda.enable_cudnn_sdp(False)         # its backward pass has no deterministic form
"""
