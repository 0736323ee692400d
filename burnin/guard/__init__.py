"""The training guard: checksum and replay inside the training loop; it tells chip from link from software.

What belongs here: what a training job imports. `decide` and `judge` (pure) say what observations mean; the rest sees.
Always true: the guard never changes training (but for a wrong gradient that it replaces by the right one, and the
kernels of checked steps if `GuardConfig.steady` asks for it), waits only up to a deadline, and never says that it
checked what it did not check.
"""

from burnin.guard.config import GuardConfig
from burnin.guard.guard import ReplayGuard
from burnin.guard.saved import save_step
from burnin.guard.settings import deterministic_settings

__all__ = ["GuardConfig", "ReplayGuard", "deterministic_settings", "save_step"]
