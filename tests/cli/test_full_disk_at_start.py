"""A disk without room when agent or controller start: one line, exit code 1, and nothing left that is in the way."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

NAMESPACE = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-euc"]
MAY = 'mount -t tmpfs none "$1"'
STORY = r"""
disk=$1 python=$2; shift 2
mount -t tmpfs -o size=2m none "$disk"
mkdir "$disk/a" "$disk/c"
fill() { cat /dev/zero > "$disk/fill" 2>/dev/null || true; }
start() { for noun in agent controller; do
    code=0; "$python" -P -m fleetd $noun --config "$disk/../$noun.yaml" 2>"$disk/../$noun.$1" || code=$?; echo $code
done; }
use() { "$python" -c 'import random, sys; from pathlib import Path
from fleetd.stores.sql import SqlStore; from fleetd.uplink.spool import SqliteSpool
disk = Path(sys.argv[1]); SqlStore(disk / "c/fleet.db").close()
SqliteSpool(disk / "a/spool.db", rng=random.Random(1)).close()' "$disk"; echo used; }
fill; start first; rm "$disk/fill"; use
# The second time the ledger is there, and has no room for what SQLite keeps beside it.
fill; code=0
"$python" -P -m fleetd controller --config "$disk/../controller.yaml" 2>"$disk/../controller.second" || code=$?
echo $code; rm "$disk/fill"; use
"""


def test_a_full_disk_is_one_line_and_does_no_harm(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    may = subprocess.run([*NAMESPACE, MAY, "sh", str(disk)], capture_output=True, check=False)
    if may.returncode != 0:
        pytest.skip("mounting in a user namespace is not allowed here")
    common = "exporter: {listen: '127.0.0.1:0'}\napiVersion: fleetd/v1\n"
    (tmp_path / "agent.yaml").write_text(
        f"{common}kind: Agent\nstate_dir: {disk / 'a'}\ndevices: {{backend: sim}}\n"
        f"status: {{socket: {tmp_path / 's'}}}\nuplink: {{address: '127.0.0.1:1', insecure: true}}\n"
    )
    (tmp_path / "controller.yaml").write_text(
        f"{common}kind: Controller\nstate_dir: {disk / 'c'}\nserver: {{listen: '127.0.0.1:0', insecure: true}}\n"
    )
    done = subprocess.run(
        [*NAMESPACE, STORY, "sh", str(disk), sys.executable],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert done.stdout.split() == ["1", "1", "used", "1", "used"], done.stderr
    for name, file in (("agent.first", "a/spool.db"), ("controller.first", "c/fleet.db")):
        assert (tmp_path / name).read_text() == f"fleetd: {disk / file}: database or disk is full\n"
    (line,) = (tmp_path / "controller.second").read_text().splitlines()
    assert line.startswith(f"fleetd: {disk / 'c/fleet.db'}: ")
