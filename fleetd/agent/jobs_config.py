"""Where jobs are learnt from; a module of its own, so that reading a configuration loads no gRPC."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsConfig:
    """Where to learn which job or pod uses a GPU."""

    slurm: str = "auto"
    """`auto`: from the processes that hold the GPU, which takes the host's process ids; `off`. The account of a job is
    seen only by an agent that may read the environment of others (root, or CAP_SYS_PTRACE)."""
    kubelet: str = "auto"
    """`auto`: the kubelet's usual socket, where the agent can see one (mostly root alone can); the path of another,
    which has to be there; `off`."""
    interval_seconds: float = 15.0
    deadline_seconds: float = 5.0
    """How long the kubelet, or /proc, may take."""

    def __post_init__(self) -> None:
        """Refuse what cannot work. Raises ValueError."""
        if self.slurm not in {"auto", "off"}:
            raise ValueError(f"slurm: {self.slurm!r} is none of auto, off")
        if self.kubelet not in {"auto", "off"} and not self.kubelet.startswith("/"):
            raise ValueError(f"kubelet: {self.kubelet!r} is none of auto, off, and no absolute path")
        for name in ("interval_seconds", "deadline_seconds"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name}: {getattr(self, name)} is not above 0")
