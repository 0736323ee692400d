"""Who holds a GPU, from a /proc of the test's own."""

from pathlib import Path

from fleetd.agent.holders import HOLDERS_MAX, Holder, holders


def process(proc: Path, pid: int, name: str, *opened: str) -> None:
    (proc / str(pid) / "fd").mkdir(parents=True)
    (proc / str(pid) / "comm").write_text(f"{name}\n")
    for number, path in enumerate(opened):
        (proc / str(pid) / "fd" / str(number)).symlink_to(path)


def test_s44_the_processes_that_hold_a_gpu_are_named(tmp_path: Path) -> None:
    process(tmp_path, 40, "python3", "/dev/null", "/dev/nvidia-uvm", "/dev/nvidia3", "/dev/nvidiactl")
    process(tmp_path, 7, "rocm-user", "/dev/kfd")
    process(tmp_path, 8, "viewer", "/dev/dri/renderD128")
    process(tmp_path, 9, "innocent", "/dev/null", "/dev/nvidia3.log", "/dev/dri/card0", "socket:[1]")
    (tmp_path / "10").mkdir()  # it has just ended
    (tmp_path / "self").mkdir()
    assert holders(tmp_path) == (
        Holder(pid=7, name="rocm-user", device="/dev/kfd"),
        Holder(pid=8, name="viewer", device="/dev/dri/renderD128"),
        Holder(pid=40, name="python3", device="/dev/nvidia-uvm"),
    )


def test_they_are_bounded(tmp_path: Path) -> None:
    for pid in range(1, HOLDERS_MAX + 10):
        process(tmp_path, pid, "job", "/dev/nvidia0")
    assert len(holders(tmp_path)) == HOLDERS_MAX
