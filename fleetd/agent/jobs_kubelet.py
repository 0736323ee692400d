"""Which pod a GPU is given to, from the kubelet's pod-resources socket (`v1.PodResourcesLister/List`).

The only place outside of uplink that speaks gRPC: the kubelet offers nothing else. Devices are named by their plugin:
NVIDIA's by UUID (a time-sliced replica with `::N` behind it), AMD's by PCI address. A MIG device or an AMD partition
stands for the GPU that it is a part of, which is what a fault strikes; one that the inventory does not name is not
mapped.
"""

from collections.abc import Sequence
from pathlib import Path

import grpc
from google.protobuf.message import DecodeError

from fleetd.agent.jobs_slurm import USERS_MAX
from fleetd.model.host import Gpu
from fleetd.model.job import GpuJob
from fleetd.pb.kubelet.v1.podresources_pb2 import ListPodResourcesRequest, ListPodResourcesResponse
from fleetd.ports import PortError

METHOD = "/v1.PodResourcesLister/List"
_ANSWER_BYTES_MAX = 16 << 20
_LABEL_MAX = 253
"""As long as Kubernetes lets a name be."""


class KubeletError(PortError):
    """The kubelet does not answer, or answers nonsense."""


async def pod_jobs(socket: Path, gpus: Sequence[Gpu], *, deadline_s: float) -> tuple[GpuJob, ...]:
    """The containers that the kubelet gave these GPUs to. Raises KubeletError."""
    options = [("grpc.max_receive_message_length", _ANSWER_BYTES_MAX), ("grpc.enable_http_proxy", 0)]
    # A connection each time: the kubelet may have been restarted, and one that dangles would have to be noticed.
    async with grpc.aio.insecure_channel(f"unix:{socket}", options=options) as channel:
        # The answer as bytes: what cannot be decoded, gRPC would log with a traceback and hand over as None.
        call = channel.unary_unary(
            METHOD, request_serializer=ListPodResourcesRequest.SerializeToString, response_deserializer=bytes
        )
        try:
            answer = ListPodResourcesResponse.FromString(await call(ListPodResourcesRequest(), timeout=deadline_s))
        except grpc.aio.AioRpcError as error:
            raise KubeletError(f"{socket}: {error.code().name}: {error.details()}") from error
        except DecodeError as error:
            raise KubeletError(f"{socket}: the answer is none: {error}") from error
    return _mapped(answer, gpus)


def _mapped(answer: ListPodResourcesResponse, gpus: Sequence[Gpu]) -> tuple[GpuJob, ...]:
    named = {_key(gpu.gpu): gpu for gpu in gpus} | {_key(gpu.pci_address): gpu for gpu in gpus if gpu.pci_address}
    named |= {_key(part): gpu for gpu in gpus for part in gpu.partitions}
    found: dict[GpuJob, None] = {}
    for pod in answer.pod_resources:
        for container in pod.containers:
            labels = (pod.namespace, pod.name, container.name)
            if not all(0 < len(label) <= _LABEL_MAX and label.isprintable() for label in labels):
                continue
            ids = (device for devices in container.devices for device in devices.device_ids)
            for gpu in dict.fromkeys(named[key] for device in ids if (key := _key(device)) in named):
                job = GpuJob(
                    gpu=gpu.gpu,
                    scheduler="kubernetes",
                    namespace=pod.namespace,
                    pod=pod.name,
                    container=container.name,
                )
                if sum(one.gpu == gpu.gpu for one in found) < USERS_MAX:
                    found[job] = None
    return tuple(found)


def _key(device: str) -> str:
    """A device's name as both sides write it: without replica, and a PCI domain with the digits that it needs."""
    name = device.partition("::")[0].lower()
    domain, colon, rest = name.partition(":")
    return f"{domain.lstrip('0'):0>4}:{rest}" if colon else name
