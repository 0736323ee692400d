"""What a training program may say to the guard."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardConfig:
    """How often and how thoroughly to check. The same on every rank."""

    every: int = 500
    """Steps between two checks; one costs about one step."""
    peer_every: int = 10
    """Of these checks, each such one is replayed by a peer, too: only peers see a fault that repeats itself."""
    calibrate_at: int = 3
    """Step at which the guard calibrates: after kernels were chosen and DDP has built its buckets."""
    replays: int = 10
    """Replays of a calibration, at least 10."""
    deadline_s: float = 60.0
    """Longest wait for a device or for another rank."""
    anomalies: bool = True
    """Whether a loss that jumps makes the next step a checked one."""
    seed: int = 0
    """Of the fingerprints."""
    steady: bool = False
    """Whether checked steps, and they alone, run by deterministic kernels where the program's differ from run to run.

    Then all of a decoder's gradients are compared, not the few that are computed before the first attention. It is off
    unless asked for: the rounding of a checked step is then another than the program's kernels would give, as if they
    had run once more. Where deterministic algorithms are in force anyway it changes nothing, bit for bit.
    """

    def __post_init__(self) -> None:
        """Refuse what cannot work. Raises ValueError."""
        if min(self.every, self.peer_every, self.calibrate_at) < 1:
            raise ValueError("every, peer_every and calibrate_at are at least 1")
        if self.replays < 10:  # noqa: PLR2004 - see burnin.guard.calibrate
            raise ValueError("replays: fewer than 10 call tensors reproducible that are not")
        if not self.deadline_s > 0:
            raise ValueError("deadline_s is a time, in seconds, above 0")
