"""What the status socket says: whether new work may start, what stands against which GPU, and how the agent does."""

from collections.abc import Sequence
from typing import Any

from fleetd.core.gate import Faults, Readiness, Standing, gate
from fleetd.model.host import Gpu
from fleetd.model.ids import BootId, GpuId, HostName
from fleetd.model.status import AgentStatus

SCHEMA = "fleetd.agent.status/1"


def document(
    *,
    host: HostName,
    boot_id: BootId,
    version: str,
    status: AgentStatus,
    faults: Faults,
    driver_silent: str,
    stale_s: float,
    unheard: Sequence[GpuId] = (),
    released_s: float | None = None,
) -> dict[str, Any]:
    """The document, JSON-ready. `readiness` is `ready`, `bad` or `cannot_tell`; numbers are in base units.

    `unheard`: the GPUs that have not answered since the agent was started. `released_s`: for how much longer the agent
    has let go of the GPUs; None: it holds them.
    """
    answered = {sample.gpu for sample in status.samples}
    answer = gate(
        faults,
        gpus=len(status.inventory),
        missing=sum(gpu.gpu not in answered for gpu in status.inventory),
        unheard=unheard,
        silent_gpus=status.silent_gpus,
        driver_silent=driver_silent,
        age_s=status.samples_age_s,
        stale_s=stale_s,
    )
    readiness, why = answer.readiness, answer.why
    if released_s is not None and readiness is not Readiness.BAD:  # nothing is read meanwhile, and this is why
        readiness = Readiness.CANNOT_TELL
        why = f"the GPUs are released for another {released_s:.0f} s: somebody resets or services them"
    return {
        "schema": SCHEMA,
        "host": host,
        "boot_id": boot_id,
        "agent_version": version,
        "readiness": readiness.value,
        "why": why,
        "host_events": [_event(one) for one in faults.values() if one.gpu is None],
        "gpus": [_gpu(gpu, faults, answers=gpu.gpu in answered) for gpu in status.inventory],
        "sample_age_seconds": status.samples_age_s,
        "silent_gpus": len(status.silent_gpus),
        "released_seconds": released_s,
        "uplink_connected": status.uplink_connected,
        "spool_pending": status.spool_pending,
        "spool_dropped_total": status.spool_dropped_total,
        "findings_total": status.findings_total,
        "kernel_log_age_seconds": status.kernel_log_age_s,
        "errors_total": dict(status.errors_total),
    }


def _gpu(gpu: Gpu, faults: Faults, *, answers: bool) -> dict[str, Any]:
    return {
        "gpu": gpu.gpu,
        "index": gpu.index,
        "sku": gpu.sku,
        "pci_address": gpu.pci_address,
        "partitions": list(gpu.partitions),
        "answers": answers,
        "events": [_event(one) for one in faults.values() if one.gpu == gpu.gpu],
    }


def _event(one: Standing) -> dict[str, Any]:
    return {
        "code": one.code,
        "severity": one.severity.name.lower(),
        "action": one.action.value,
        "clear": one.clear,
        "at_seconds": one.at_s,
        "why": one.why,
    }
