"""How fast a log is scanned: `python tests/bench/bench_faults.py [MEGABYTES]` prints MB/s of one core.

`mixed` is a node's syslog with a fault now and then; `faults only` is a flood in which every line has to be looked at.
"""

import random
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from fleetd.config.faults import load_catalogue
from fleetd.core.faults.scan import BLOCK_BYTES, LogScan

INPUTS = Path(__file__).parents[1] / "faults" / "inputs"
ORDINARY = (
    "systemd[1]: Started Session {n} of User root.",
    'kubelet[{m}]: I0810 12:00:00.{n:06d} pod_workers.go:965] "Finished syncing pod" pod="default/train-{m}"',
    "sshd[{m}]: Accepted publickey for root from 10.0.1.{m} port {n} ssh2",
    "kernel: [{n}.123456] IPv6: ADDRCONF(NETDEV_CHANGE): eth{m}: link becomes ready",
    'containerd[{m}]: time="2026-08-10T12:00:00Z" level=info msg="StartContainer for {n:x} returns successfully"',
    "CRON[{m}]: (root) CMD (test -x /usr/sbin/anacron || cd / && run-parts --report /etc/cron.hourly)",
)


def ordinary(lines: int) -> bytes:
    rnd = random.Random(1)  # noqa: S311 - a reproducible log
    texts = (rnd.choice(ORDINARY).format(n=n, m=n % 97) for n in range(lines))
    return "".join(
        f"Aug 10 {n // 3600 % 24:02}:{n // 60 % 60:02}:{n % 60:02} node-a {t}\n" for n, t in enumerate(texts)
    ).encode()


def blocks(unit: bytes, size: int) -> Iterator[bytes]:
    """`size` bytes made of one unit, in the blocks of a reader of files."""
    whole = unit * (2 * BLOCK_BYTES // len(unit) + 1)
    fed = position = 0
    while fed < size:
        yield whole[position : position + BLOCK_BYTES]
        fed += BLOCK_BYTES
        position = (position + BLOCK_BYTES) % len(unit)


def main() -> None:
    size = int(sys.argv[1] if len(sys.argv) > 1 else 100) * 1_000_000
    kernel = [t for path in sorted(INPUTS.glob("*.txt")) if b"\n# kind: kernel-" in (t := path.read_bytes())]
    faults = b"".join(text.partition(b"# ---\n")[2] for text in kernel)
    catalogue = load_catalogue()
    for name, unit in (("mixed", ordinary(120_000) + faults), ("faults only", faults)):
        log = LogScan(catalogue)
        start_s = time.process_time()
        for block in blocks(unit, size):
            log.feed(block)
        result = log.finish()
        spent_s = time.process_time() - start_s
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{name}: {size / spent_s / 1e6:.0f} MB/s, {len(result.findings)} findings, peak {peak:.0f} MiB")  # noqa: T201


if __name__ == "__main__":
    main()
