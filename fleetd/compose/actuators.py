"""Which scheduler acts: `actuator:` of the controller's file → what carries orders out and tells which jobs ended."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import assert_never

from fleetd.actuators.command import Commands
from fleetd.actuators.config import KubernetesConfig, SlurmConfig, WebhookConfig
from fleetd.actuators.dryrun import DryRun
from fleetd.actuators.kubernetes import Kubernetes
from fleetd.actuators.kubernetes_api import Api
from fleetd.actuators.kubernetes_jobs import KubernetesJobs
from fleetd.actuators.routed import Routed
from fleetd.actuators.slurm import Slurm
from fleetd.actuators.slurm_jobs import SlurmJobs
from fleetd.actuators.webhook import Webhook
from fleetd.config.files import ControllerConfig
from fleetd.ports import Actuator, Clock, JobEnds
from fleetd.system import run_blocking, run_on_daemon

# What waits for a server does so on a thread of its own (one a worker of the dispatcher, and one a look): the ledger's
# threads are never used up by a server that hangs.


def build_actuator(config: ControllerConfig, folder: Path, clock: Clock) -> tuple[Actuator, JobEnds | None]:
    """Make what carries orders out, and what hears of the ends of jobs where the scheduler tells them.

    Raises ActuatorError when it cannot work at all: the record or a key cannot be read.
    """
    scheduler, job_ends = _scheduler(config, folder, clock)
    if config.pages is not None:
        return Routed(scheduler, Webhook(config.pages, clock=clock, run_blocking=run_on_daemon)), job_ends
    return scheduler, job_ends


def _scheduler(config: ControllerConfig, folder: Path, clock: Clock) -> tuple[Actuator, JobEnds | None]:
    match config.actuator:
        case "dryrun":
            return DryRun(folder / "orders.jsonl", run_blocking=run_blocking), None
        case SlurmConfig() as slurm:
            commands = Commands(timeout_s=slurm.timeout_seconds, environment=slurm_environment(slurm, os.environ))
            return Slurm(slurm, commands=commands, clock=clock), SlurmJobs(slurm, commands=commands)
        case KubernetesConfig() as kubernetes:
            api = Api(kubernetes, run_blocking=run_on_daemon)
            return Kubernetes(kubernetes, api=api, clock=clock), KubernetesJobs(kubernetes, api=api, clock=clock)
        case WebhookConfig() as webhook:
            return Webhook(webhook, clock=clock, run_blocking=run_on_daemon), None
        case _:
            assert_never(config.actuator)


def slurm_environment(config: SlurmConfig, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of Slurm's commands: what they need, and nothing that changes how they print."""
    conf = str(config.conf) if config.conf is not None else environ.get("SLURM_CONF")
    kept = {"PATH": environ.get("PATH", "/usr/bin:/bin"), "LC_ALL": "C.UTF-8"}
    return {**kept, **({"SLURM_CONF": conf} if conf else {})}
