"""What the real world can keep waiting: threads that nobody waits for, users, memory of processes."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fleetd.system import resident_bytes, run_on_daemon, user_name


def test_a_function_on_a_daemon_thread_returns_or_raises_where_it_is_awaited() -> None:
    assert asyncio.run(run_on_daemon(lambda: 3)) == 3
    with pytest.raises(ZeroDivisionError):
        asyncio.run(run_on_daemon(lambda: 1 // 0))


def test_the_end_of_the_process_does_not_wait_for_a_function_that_never_returns() -> None:
    program = """
import asyncio, threading
from fleetd.system import run_on_daemon
async def main():
    await asyncio.wait({asyncio.ensure_future(run_on_daemon(threading.Event().wait))}, timeout=0.1)
asyncio.run(main())
"""
    assert subprocess.run([sys.executable, "-c", program], timeout=120, check=False).returncode == 0


def test_users_have_names_or_none() -> None:
    assert user_name(0) == "root"
    assert user_name(2**31 - 7) is None


def test_resident_memory_of_a_process(tmp_path: Path) -> None:
    held = resident_bytes(os.getpid())
    assert 5 << 20 < held < 4 << 30
    assert resident_bytes(1, tmp_path) == 0.0, "gone"
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "statm").write_text("100 20 5 1 0 10 0\n")
    assert resident_bytes(1, tmp_path) == 20.0 * os.sysconf("SC_PAGE_SIZE")
    (tmp_path / "1" / "statm").write_text("garbage")
    assert resident_bytes(1, tmp_path) == 0.0
