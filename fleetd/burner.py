"""Runs the burn-in as a child process and keeps its report: the `Burner` port over `python -m burnin`.

A long level (`burnin`, `soak`) goes on where it was when its order is carried out again, after a restart of the agent.
The child is a process group of its own and never outlives the agent: the kernel sends it SIGTERM when the agent dies,
however it dies, and the burn-in then ends its own children. A cancelled burn is ended within `_GRACE_S`.
"""

import asyncio
import os
import signal
import sys
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from burnin.levels import LEVELS
from fleetd.durable import settle
from fleetd.model.ids import HostName
from fleetd.model.order import RunBurnin
from fleetd.ports import BurnerError

_WITH_REPORT = (0, 1, 3)
"""Exit codes of a burn-in that left a report: passed, failed, could not judge."""
_GRACE_S = 1.5
"""From SIGTERM to SIGKILL; the agent itself has two seconds to end."""
_STDERR_BYTES_KEPT = 4096
_DEADLINE_MIN_S = 1800.0
RESUME = ".resume"
"""Ends the name of the file beside a report in which a long burn-in notes how far it is."""

LEASH = """
import ctypes, os, signal, sys
ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGTERM, 0, 0, 0)
if os.getppid() != int(sys.argv[1]):
    sys.exit("the parent is gone")
os.execvp(sys.argv[2], sys.argv[2:])
"""
"""Runs first in the child: PR_SET_PDEATHSIG (1) outlives execve, and the parent may have died before it was set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BurnerConfig:
    """How burn-ins are run on this host."""

    backend: Literal["auto", "cuda", "cpu", "sim"] = "auto"
    gpus: int | None = None
    """How many GPUs to simulate (`sim`), or to use; None: the burn-in's own default, all of them."""
    seed: int | None = None
    """The same inputs every time, for rehearsals; None: the burn-in draws a seed and reports it."""
    inject: str | None = None
    """A fault to plant, `gpu=5,fault=F03,rate=0.3`; `sim` only, so that no real GPU is blamed for it."""
    python: str | None = None
    """Interpreter of the environment that has torch and burnin; None: the agent's own."""
    deadline_seconds: float | None = None
    """A burn-in that takes longer is ended and left without a judgement; None: half as long again as its level takes,
    and at least half an hour."""

    def __post_init__(self) -> None:
        """Refuse what cannot work. Raises ValueError."""
        if self.inject is not None and self.backend != "sim":
            raise ValueError("inject: needs backend: sim, since a planted fault must never blame a real GPU; remove it")
        if self.gpus is not None and self.gpus < 1:
            raise ValueError(f"gpus: {self.gpus} is not above 0")
        if self.seed is not None and not 0 <= self.seed < 1 << 63:
            raise ValueError(f"seed: {self.seed} is not from 0 to {(1 << 63) - 1}")
        if self.deadline_seconds is not None and self.deadline_seconds <= 0:
            raise ValueError(f"deadline_seconds: {self.deadline_seconds} is not above 0")


class ProcessBurner:
    """The `Burner` port. One burn-in after the other: the caller sees to that."""

    def __init__(
        self,
        *,
        host: HostName,
        config: BurnerConfig,
        environ: Mapping[str, str] | None = None,
        exposure: Path | None = None,
    ) -> None:
        """Start nothing yet.

        Args:
            host: the name that reports carry.
            config: how to run.
            environ: the child's environment; None: the agent's.
            exposure: the file in which burn-ins add up how long each GPU was tested by what; None: nowhere.
        """
        self._host = host
        self._exposure = exposure
        self._config = config
        self._environ = environ

    async def burn(self, order: RunBurnin, report: Path) -> None:
        """Run the burn-in and leave its report at `report`. Raises BurnerError when there is none to leave."""
        part = report.with_name(f".{report.name}.part")
        try:
            report.parent.mkdir(parents=True, exist_ok=True)
            part.unlink(missing_ok=True)
            command = self._command(order, part, resume=report.with_suffix(RESUME))
            code, said = await self._run(command, limit_s=self._limit_s(order.level))
            _settle(part, report, code, said)
        except OSError as error:
            raise BurnerError(f"the burn-in does not start or leaves no report: {error}") from error
        finally:
            with suppress(OSError):
                part.unlink(missing_ok=True)

    def _limit_s(self, level: str) -> float:
        if self._config.deadline_seconds is not None:
            return self._config.deadline_seconds
        known = LEVELS.get(level)
        return max(_DEADLINE_MIN_S, known.patience_seconds) if known is not None else _DEADLINE_MIN_S

    def _command(self, order: RunBurnin, part: Path, *, resume: Path) -> list[str]:
        config = self._config
        # -P: a daemon that runs as root must not import what lies in the directory it happens to stand in.
        command = [config.python or sys.executable, "-P", "-m", "burnin", "run"]
        # With "=", so that no value from the wire can be taken for an option.
        command += [f"--level={order.level}", f"--backend={config.backend}", f"--host={self._host}", f"--json={part}"]
        level = LEVELS.get(order.level)
        again = resume if level is not None and level.long else None
        for option, value in (
            ("gpus", config.gpus),
            ("seed", config.seed),
            ("inject", config.inject),
            ("exposure", self._exposure),
            ("resume", again),
        ):
            if value is not None:
                command.append(f"--{option}={value}")
        return command

    async def _run(self, command: list[str], *, limit_s: float) -> tuple[int, str]:
        """Exit code and last line of standard error. Raises BurnerError past the deadline, OSError without a start."""
        # A pipe of our own: asyncio counts a process as ended only when every holder of its pipes has ended too.
        read_end, write_end = os.pipe()
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read_end, "rb", buffering=0)
        )
        tail: deque[int] = deque(maxlen=_STDERR_BYTES_KEPT)
        listener = asyncio.create_task(_listen(reader, tail))
        try:
            process = await self._start(command, write_end)
            async with asyncio.timeout(limit_s):
                code = await _wait(process)
            await asyncio.wait([listener], timeout=_GRACE_S)
        except TimeoutError as error:
            said = _last_line(tail)
            limit = f"the burn-in was ended after {limit_s:g} s"
            raise BurnerError(f"{limit}; it said: {said}" if said else limit) from error
        finally:
            listener.cancel()
            transport.close()
        return code, _last_line(tail)

    async def _start(self, command: list[str], stderr: int) -> asyncio.subprocess.Process:
        """Start the command on its leash; closes `stderr` here. Raises OSError."""
        try:
            return await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", "-c", LEASH, str(os.getpid())),
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=stderr,
                start_new_session=True,
                env=self._environ,
            )
        finally:
            os.close(stderr)


async def _wait(process: asyncio.subprocess.Process) -> int:
    """Wait for the end of the process; a caller that gives up (deadline, cancellation) ends it."""
    try:
        return await process.wait()
    except asyncio.CancelledError:
        await _end(process)
        raise


async def _listen(stderr: asyncio.StreamReader, tail: "deque[int]") -> None:
    """Keep the end of what it says; never lets it wait for a reader."""
    while chunk := await stderr.read(1 << 16):
        tail.extend(chunk)


def _last_line(tail: "deque[int]") -> str:
    lines = bytes(tail).decode(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


async def _end(process: asyncio.subprocess.Process) -> None:
    """Ask the burn-in to end (it ends its children itself), then kill whatever is left of its group."""
    with suppress(ProcessLookupError):
        process.terminate()
    with suppress(TimeoutError):
        async with asyncio.timeout(_GRACE_S):
            await process.wait()
    # The group's number cannot have been given to another one: that takes a wrap of all process numbers since then.
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


def _settle(part: Path, report: Path, code: int, said: str) -> None:
    """Move a report into place for good, or say why there is none. Raises BurnerError, OSError."""
    if code not in _WITH_REPORT:
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        raise BurnerError(f"the burn-in {how}: {said or 'it said nothing'}")
    if not part.is_file() or not part.stat().st_size:
        raise BurnerError(f"the burn-in ended with exit code {code} and left no report: {said or 'it said nothing'}")
    settle(part, report)
