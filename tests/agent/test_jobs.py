"""Who uses a GPU: Slurm from a faked /proc, pods from a real gRPC server on a Unix socket in the kubelet's place."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from fleetd.agent.jobs import JobWatch
from fleetd.agent.jobs_config import JobsConfig
from fleetd.agent.jobs_slurm import PIDS_MAX, USERS_MAX, slurm_jobs
from fleetd.model.host import Gpu
from fleetd.model.ids import GpuId
from fleetd.model.job import GpuJob
from fleetd.pb.kubelet.v1.podresources_pb2 import (
    ContainerDevices,
    ContainerResources,
    ListPodResourcesRequest,
    ListPodResourcesResponse,
    PodResources,
)
from fleetd.system import run_on_daemon
from tests.agent.fakes_agent import FakeClock

NVIDIA = Gpu(gpu=GpuId("GPU-8A3f"), index=0, vendor="nvidia", sku="H200", pci_address="00000000:1B:00.0")
AMD = Gpu(gpu=GpuId("64ff74a1"), index=1, vendor="amd", sku="MI300X", pci_address="0000:c3:00.0")
V1 = "12:memory:/slurm/uid_1000/job_{}/step_0/task_0\n11:cpu:/\n"
V2 = "0::/system.slice/slurmstepd.scope/job_{}/step_0/user/task_0\n"
ENVIRON = {"PATH": "/bin", "SLURM_JOB_ID": "4711", "SLURM_JOB_USER": "ada", "SLURM_JOB_ACCOUNT": "physics"}


def process(proc: Path, pid: int, *, cgroup: str | None, environ: Mapping[str, str] | None) -> None:
    folder = proc / str(pid)
    folder.mkdir(parents=True)
    if cgroup is not None:
        (folder / "cgroup").write_text(cgroup)
    if environ is not None:
        (folder / "environ").write_bytes(b"".join(f"{name}={value}\0".encode() for name, value in environ.items()))


def name(uid: int) -> str | None:
    return "owner" if uid == os.getuid() else None


def job(job_id: str, user: str | None = "ada", account: str | None = "physics") -> GpuJob:
    return GpuJob(gpu=NVIDIA.gpu, scheduler="slurm", job_id=job_id, user=user, account=account)


# ── Slurm ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("cgroup", "environ", "expected"),
    [
        (V1.format(4711), ENVIRON, job("4711")),
        (V2.format(4711), ENVIRON, job("4711")),
        ("0::/system.slice/gpu1_slurmstepd.scope/job_4711/step_batch/user\n", ENVIRON, job("4711")),
        (V2.format(4711), None, job("4711", "owner", None)),
        (V2.format(4711), {**ENVIRON, "SLURM_JOB_ID": "666"}, job("4711", "owner", None)),
        ("0::/user.slice\n", ENVIRON, job("4711")),
        (None, ENVIRON, job("4711")),
        (None, {**ENVIRON, "SLURM_JOB_ID": "; rm -rf"}, None),
        ("0::/user.slice/job_4711\n", {"PATH": "/bin"}, None),
        (V2.format("x"), None, None),
        (
            V2.format(4711),
            {**ENVIRON, "SLURM_JOB_USER": "a\nb", "SLURM_JOB_ACCOUNT": "a" * 65},
            job("4711", "owner", None),
        ),
        (None, None, None),
    ],
)
def test_the_job_of_a_process(
    tmp_path: Path, cgroup: str | None, environ: Mapping[str, str] | None, expected: GpuJob | None
) -> None:
    process(tmp_path, 1000, cgroup=cgroup, environ=environ)
    assert slurm_jobs(tmp_path, {NVIDIA.gpu: [1000]}, name) == ((expected,) if expected else ())


def test_garbage_in_proc_is_nobodys_job(tmp_path: Path) -> None:
    (tmp_path / "1" / "environ").mkdir(parents=True)
    (tmp_path / "2").mkdir()
    (tmp_path / "2" / "cgroup").write_bytes(b"\xff\xfe/slurm/job_\xff/\0" * 100_000)
    (tmp_path / "2" / "environ").write_bytes(b"SLURM_JOB_ID\0=\0\xff=\xff\0SLURM_JOB_ID=\xff")
    assert slurm_jobs(tmp_path, {NVIDIA.gpu: [1, 2, 3]}, name) == ()


def test_processes_of_one_job_are_one_user_and_a_shared_gpu_has_a_bounded_number(tmp_path: Path) -> None:
    for pid in range(1, 4):
        process(tmp_path, pid, cgroup=V2.format(7), environ=None)
    for pid in range(4, 20):
        process(tmp_path, pid, cgroup=V2.format(pid), environ=None)
    assert [one.job_id for one in slurm_jobs(tmp_path, {NVIDIA.gpu: [1, 2, 3]}, name)] == ["7"]
    assert len(slurm_jobs(tmp_path, {NVIDIA.gpu: range(1, 20)}, name)) == USERS_MAX
    process(tmp_path, 9999, cgroup=V2.format(1), environ=None)
    assert slurm_jobs(tmp_path, {NVIDIA.gpu: [*range(100, 100 + PIDS_MAX), 9999]}, name) == ()


# ── Kubernetes ──────────────────────────────────────────────────────────────────────────────────────────────────────


def pod(name: str, *containers: tuple[str, Mapping[str, list[str]]], namespace: str = "train") -> PodResources:
    return PodResources(
        name=name,
        namespace=namespace,
        containers=[
            ContainerResources(
                name=container,
                devices=[ContainerDevices(resource_name=kind, device_ids=ids) for kind, ids in devices.items()],
            )
            for container, devices in containers
        ],
    )


def owner(gpu: Gpu, pod_name: str, container: str = "worker") -> GpuJob:
    return GpuJob(gpu=gpu.gpu, scheduler="kubernetes", namespace="train", pod=pod_name, container=container)


class Kubelet:
    """Answers `List` as it is told: pods, raw bytes, or not at all."""

    def __init__(self) -> None:
        self.answer: ListPodResourcesResponse | bytes | None = ListPodResourcesResponse()
        self.calls = 0

    def pods(self, *pods: PodResources) -> None:
        self.answer = ListPodResourcesResponse(pod_resources=pods)

    async def list(self, _request: ListPodResourcesRequest, _context: object) -> bytes:
        self.calls += 1
        if self.answer is None:
            await asyncio.Event().wait()
        return self.answer if isinstance(self.answer, bytes) else self.answer.SerializeToString()  # type: ignore[union-attr]

    @asynccontextmanager
    async def serving(self, socket: Path) -> AsyncIterator[None]:
        server = grpc.aio.server()
        method = grpc.unary_unary_rpc_method_handler(
            self.list, request_deserializer=ListPodResourcesRequest.FromString, response_serializer=bytes
        )
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("v1.PodResourcesLister", {"List": method}),)
        )
        server.add_insecure_port(f"unix:{socket}")
        await server.start()
        try:
            yield
        finally:
            await server.stop(0)


def watch(
    socket: Path | str, clock: FakeClock | None = None, *, inventory: tuple[Gpu, ...] = (NVIDIA, AMD), **config: float
) -> JobWatch:
    return JobWatch(
        config=JobsConfig(slurm="off", kubelet=str(socket), **config),  # type: ignore[arg-type]
        clock=clock or FakeClock(),
        run_blocking=run_on_daemon,
        inventory=lambda: inventory,
        processes=dict,
        user_name=name,
    )


def test_pods_by_uuid_by_pci_address_and_as_a_replica(tmp_path: Path) -> None:
    sliced = replace(NVIDIA, gpu=GpuId("GPU-77"), index=2, pci_address=None, partitions=("MIG-77a", "MIG-77b"))
    kubelet, jobs = Kubelet(), watch(tmp_path / "k.sock", inventory=(NVIDIA, AMD, sliced))
    kubelet.pods(
        pod("llm-0", ("worker", {"nvidia.com/gpu": ["GPU-8A3f"], "rdma/hca": ["mlx5_0"]}), ("sidecar", {})),
        pod("amd-0", ("worker", {"amd.com/gpu": ["0000:c3:00.0"]})),
        pod("mig-0", ("worker", {"nvidia.com/mig-1g.18gb": ["MIG-8A3f"]})),
        pod("mig-1", ("worker", {"nvidia.com/mig-1g.18gb": ["MIG-77b"]})),
        pod("", ("worker", {"nvidia.com/gpu": ["GPU-8A3f"]})),
        pod("bad\nname", ("worker", {"nvidia.com/gpu": ["GPU-8A3f"]})),
    )

    async def story() -> None:
        async with kubelet.serving(tmp_path / "k.sock"):
            await jobs.look()
            assert jobs.jobs() == (owner(NVIDIA, "llm-0"), owner(AMD, "amd-0"), owner(sliced, "mig-1"))
            kubelet.pods(pod("shared", ("worker", {"nvidia.com/gpu": [f"GPU-8A3f::{i}" for i in range(9)]})))
            await jobs.look()
            assert jobs.jobs() == (owner(NVIDIA, "shared"),)
            kubelet.pods(*(pod(f"p{i}", ("worker", {"nvidia.com/gpu": [f"GPU-8A3f::{i}"]})) for i in range(9)))
            await jobs.look()
            assert len(jobs.jobs()) == USERS_MAX
            kubelet.pods()
            await jobs.look()
            assert jobs.jobs() == ()
        assert jobs.errors_total == {"kubelet": 0, "slurm": 0}

    asyncio.run(story())


@pytest.mark.parametrize("answer", [None, b"\xff\xff garbage"])
def test_a_kubelet_that_hangs_or_talks_nonsense_is_counted_and_left_alone_for_a_growing_time(
    tmp_path: Path, answer: bytes | None
) -> None:
    kubelet, clock = Kubelet(), FakeClock()
    jobs = watch(tmp_path / "k.sock", clock, deadline_seconds=60.0, interval_seconds=15.0)
    patient = jobs._config

    async def story() -> None:
        async with kubelet.serving(tmp_path / "k.sock"):
            kubelet.pods(pod("llm-0", ("worker", {"nvidia.com/gpu": ["GPU-8A3f"]})))
            await jobs.look()
            assert jobs.jobs()
            kubelet.answer, jobs._config = answer, replace(patient, deadline_seconds=0.2)
            await jobs.look()
            assert jobs.jobs() == (), "rather nobody than the owner of yesterday"
            assert jobs.errors_total["kubelet"] == 1
            await jobs.look()
            assert jobs.errors_total["kubelet"] == 1, "not asked again at once"
            clock.now_s += 15.0
            await jobs.look()
            clock.now_s += 15.0
            await jobs.look()
            assert jobs.errors_total["kubelet"] == 2, "the second wait is longer"
            clock.now_s += 15.0
            jobs._config = patient
            kubelet.pods(pod("llm-0", ("worker", {"nvidia.com/gpu": ["GPU-8A3f"]})))
            await jobs.look()
            assert jobs.jobs() == (owner(NVIDIA, "llm-0"),)

    asyncio.run(story())


def test_a_dead_kubelet_leaves_a_socket_that_nobody_answers(tmp_path: Path) -> None:
    (tmp_path / "k.sock").touch()
    jobs = watch(tmp_path / "k.sock", deadline_seconds=60.0)
    asyncio.run(jobs.look())
    assert (jobs.jobs(), jobs.errors_total["kubelet"]) == ((), 1)


@pytest.mark.parametrize("name", ["none.sock", "longer than a name may be" * 20])
def test_where_there_is_no_kubelet_nothing_is_counted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    monkeypatch.setattr("fleetd.agent.jobs.KUBELET_SOCKET", tmp_path / name)
    for kubelet in ("auto", "off"):
        jobs = watch(kubelet)
        asyncio.run(jobs.look())
        assert (jobs.jobs(), jobs.errors_total["kubelet"]) == ((), 0)


# ── the loop ────────────────────────────────────────────────────────────────────────────────────────────────────────


def slurm_watch(proc: Path, processes: Callable[[], Mapping[GpuId, list[int]]], clock: FakeClock) -> JobWatch:
    return JobWatch(
        config=JobsConfig(kubelet="off", deadline_seconds=60.0),
        clock=clock,
        run_blocking=run_on_daemon,
        inventory=lambda: (NVIDIA,),
        processes=processes,
        user_name=name,
        proc=proc,
    )


def test_the_loop_follows_the_processes_of_the_gpus(tmp_path: Path) -> None:
    process(tmp_path, 1000, cgroup=V2.format(4711), environ=ENVIRON)
    pids: dict[GpuId, list[int]] = {NVIDIA.gpu: [1000]}

    async def story() -> None:
        clock = FakeClock(until_s=1000.0)
        jobs = slurm_watch(tmp_path, lambda: pids, clock)
        loop = asyncio.create_task(jobs.run())
        await clock.reached.wait()
        assert jobs.jobs() == (job("4711"),)
        pids[NVIDIA.gpu] = []
        await jobs.look()
        assert jobs.jobs() == ()
        loop.cancel()

    asyncio.run(story())


def test_a_process_whose_files_cannot_be_read_to_the_end_stops_only_the_mapping(tmp_path: Path) -> None:
    process(tmp_path, 1000, cgroup=V2.format(4711), environ=ENVIRON)
    go = threading.Event()
    started: list[int] = []

    async def hanging(function: Callable[[], tuple[GpuJob, ...]]) -> tuple[GpuJob, ...]:
        def slow() -> tuple[GpuJob, ...]:
            started.append(1)
            go.wait()
            return function()

        return await run_on_daemon(slow)

    async def story() -> None:
        jobs = slurm_watch(tmp_path, lambda: {NVIDIA.gpu: [1000]}, FakeClock())
        jobs._run_blocking = hanging
        patient, jobs._config = jobs._config, replace(jobs._config, deadline_seconds=0.1)
        await jobs.look()
        await jobs.look()
        assert (jobs.jobs(), jobs.errors_total["slurm"]) == ((), 2)
        jobs._config = patient
        go.set()
        await jobs.look()
        assert (jobs.jobs(), len(started)) == ((job("4711"),), 1), "one reader, however long it takes"

    asyncio.run(story())


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ({"slurm": "yes"}, "slurm: 'yes' is none of auto, off"),
        ({"kubelet": "kubelet.sock"}, "no absolute path"),
        ({"interval_seconds": 0.0}, "interval_seconds: 0.0 is not above 0"),
    ],
)
def test_what_cannot_work_is_refused(config: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        JobsConfig(**config)  # type: ignore[arg-type]
