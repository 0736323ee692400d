"""The real agent's page of metrics: a pod that the kubelet tells, DCGM's names, its own memory, promtool."""

import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from prometheus_client.parser import text_string_to_metric_families

from fleetd.pb.kubelet.v1.podresources_pb2 import (
    ContainerDevices,
    ContainerResources,
    ListPodResourcesRequest,
    ListPodResourcesResponse,
    PodResources,
)
from tests.e2e.agent_bench import agent

pytestmark = pytest.mark.e2e

DEVICES = ContainerDevices(resource_name="nvidia.com/gpu", device_ids=["GPU-1"])
CONTAINER = ContainerResources(name="worker", devices=[DEVICES])
PODS = ListPodResourcesResponse(pod_resources=[PodResources(name="llm-0", namespace="train", containers=[CONTAINER])])


@contextmanager
def kubelet(socket: Path) -> Iterator[None]:
    with ThreadPoolExecutor(max_workers=1) as threads:
        server = grpc.server(threads)
        method = grpc.unary_unary_rpc_method_handler(
            lambda _request, _context: PODS,
            request_deserializer=ListPodResourcesRequest.FromString,
            response_serializer=ListPodResourcesResponse.SerializeToString,
        )
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("v1.PodResourcesLister", {"List": method}),)
        )
        server.add_insecure_port(f"unix:{socket}")
        server.start()
        try:
            yield
        finally:
            server.stop(0).wait()


def test_the_page_of_a_real_agent(tmp_path: Path) -> None:
    config = {
        "exporter": {"compat": "dcgm"},
        "jobs": {"kubelet": str(tmp_path / "k.sock"), "interval_seconds": 0.2},
    }
    with kubelet(tmp_path / "k.sock"), agent(tmp_path, gpus=2, start=False) as host:
        exporter = {**host.config["exporter"], **config["exporter"]}
        host.configure(exporter=exporter, jobs=config["jobs"])
        host.start()
        host.hears("READY=1")
        host.until(lambda _: "fleetd_gpu_job_info" in host.metrics()[1], "the pod is known")
        text = host.metrics()[1]
        samples = {
            (sample.name, sample.labels.get("gpu", "")): sample
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }
        job = samples["fleetd_gpu_job_info", "GPU-1"]
        assert (job.labels["scheduler"], job.labels["pod"], job.labels["container"]) == (
            "kubernetes",
            "llm-0",
            "worker",
        )
        assert samples["DCGM_FI_DEV_SM_CLOCK", "1"].labels["pod"] == "llm-0"
        assert "pod" not in samples["DCGM_FI_DEV_SM_CLOCK", "0"].labels
        assert samples["DCGM_FI_DEV_SM_CLOCK", "1"].value == 1425.0
        held = {
            sample.labels["process"]: sample.value
            for family in text_string_to_metric_families(text)
            if family.name == "fleetd_agent_resident_bytes"
            for sample in family.samples
        }
        assert held["agent"] > 10 << 20
        promtool = shutil.which("promtool")
        assert promtool, "promtool is not installed; install Debian's prometheus (make deps)"
        run = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
        assert [line for line in run.stderr.splitlines() if not line.startswith("DCGM_FI_")] == []
        assert host.stop()[0] == 0
