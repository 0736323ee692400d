"""The bars: what they count, and that they fit every terminal."""

import contextlib
import io
import os
import pty
from dataclasses import replace

import pytest

from burnin.spec import Ballot, Device
from burnin.telling.bars import ROUNDS_KEPT, Bars, Disagreements
from burnin.telling.progress import Lines, open_progress
from burnin.tests import Effort
from burnin.verdict.evidence import Cast
from burnin.verdict.health import Felt, Spread
from tests.burnin.judge_evidence import BAD, EXACT, GOOD, WORSE, devices, votes

HEAT = Felt(
    temperature_celsius=Spread(min=50, mean=60, max=71),
    power_watts=Spread(min=1, mean=688.4, max=700),
    readings=3,
)


def counted(*casts: Cast, keys: str = "") -> dict[str, int]:
    apart = Disagreements({one.gpu: one.vote_key for one in devices(4, keys)})
    for cast in casts:
        apart.add(cast)
    return dict(apart.counted())


def test_a_gpu_that_steadily_says_something_else_is_counted() -> None:
    assert counted(*votes(4, {2: BAD}), *votes(4, {2: BAD}, iteration=2), *votes(4, {}, iteration=3)) == {"gpu2": 2}


def test_a_gpu_that_differs_from_itself_is_counted_alone() -> None:
    assert counted(*votes(4, {1: ((GOOD, 3), (BAD, 1))})) == {"gpu1": 1}
    assert counted(*votes(1, {0: ((GOOD, 3), (BAD, 1))})) == {"gpu0": 1}


def test_of_a_tie_nobody_is_the_right_one() -> None:
    assert counted(*votes(2, {1: BAD})) == {"gpu0": 1, "gpu1": 1}
    assert counted(*votes(3, {1: BAD, 2: WORSE})) == {"gpu0": 1, "gpu1": 1, "gpu2": 1}
    # The third GPU's ballot settles it.
    assert counted(*votes(2, {1: BAD}), votes(3, {})[2]) == {"gpu1": 1}


def test_gpus_of_another_kind_are_not_compared() -> None:
    assert counted(*votes(4, {2: BAD, 3: BAD}), keys="aabb") == {}
    assert counted(*votes(4, {3: BAD}), keys="aaab") == {}


def test_rounds_that_are_long_past_stay_counted_and_take_no_memory() -> None:
    apart = Disagreements({one.gpu: one.vote_key for one in devices(4)})
    for iteration in range(3 * ROUNDS_KEPT):
        for cast in votes(4, {2: BAD}, iteration=iteration):
            apart.add(cast)
    assert dict(apart.counted()) == {"gpu2": 3 * ROUNDS_KEPT}
    assert len(apart._rounds) == ROUNDS_KEPT


def test_what_the_self_test_plants_is_held_against_nobody(clock: "Clock") -> None:
    bars = Bars(Terminal(), monotonic=clock)
    bars.devices(devices(4))
    for cast in (*votes(4, {1: BAD}, test="selftest"), *votes(4, {2: BAD})):
        bars.cast(cast)
    bars.close()
    assert dict(bars._apart.counted()) == {"gpu2": 1}


class Terminal(io.StringIO):
    """A terminal as rich sees one."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(autouse=True)
def plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "COLORTERM", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "LINES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


def shown(
    clock: Clock, columns: int, monkeypatch: pytest.MonkeyPatch, *, gpus: int = 4, seconds: float | None = None
) -> str:
    """What stands on a terminal after GPU 2 was wrong once, 90 s into the run."""
    monkeypatch.setenv("COLUMNS", str(columns))
    out = Terminal()
    bars = Bars(out, monotonic=clock, seconds=seconds)
    many = tuple(
        Device(gpu=f"gpu{i}", index=i, sku="NVIDIA H200", sm_count=132, memory_bytes=1, vote_key="k")
        for i in range(gpus)
    )
    bars.devices(many)
    bars.test(EXACT, Effort(launches=4, rounds=2))
    for cast in votes(gpus, {2: BAD}):
        ballot: Ballot = replace(cast.ballot, flops=792 * 10**12, case="bf16 library 4096x14336x4096 rounded")
        bars.cast(replace(cast, ballot=ballot, felt=HEAT))
    clock.now_s = 90.0
    bars.close()
    out.truncate(0)
    out.seek(0)
    bars._console.print(bars.drawn())
    return out.getvalue()


@pytest.mark.parametrize("columns", [40, 63, 80, 120, 200])
@pytest.mark.parametrize("gpus", [4, 16])
def test_every_gpu_has_its_line_on_every_terminal(
    clock: Clock, columns: int, gpus: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    lines = [line.rstrip() for line in shown(clock, columns, monkeypatch, gpus=gpus).splitlines()]
    bare = [strip(line) for line in lines]
    assert len(bare) == gpus + 1, "one line a GPU: a line that wraps would double them"
    assert max(map(len, bare)) <= columns
    for index, line in enumerate(bare[1:]):
        assert line.startswith(f"GPU {index} ")
        assert "792 T/s" in line
        assert "688 W" in line
        assert "71 °C" in line
        assert ("1 differ" in line) == (index == 2)
    assert all(("4096x14336x4096" in line) == (columns >= 120) for line in bare[1:])


def strip(line: str) -> str:
    """Without the styles that are no colours."""
    for code in ("\x1b[1m", "\x1b[0m", "\x1b[2m", "\x1b[1;2m"):
        line = line.replace(code, "")
    assert "\x1b" not in line, f"a colour where none was wanted: {line!r}"
    return line.rstrip()


@pytest.mark.parametrize(
    ("seconds", "head"),
    [
        (None, "gemm.exact: 1:30"),
        (300.0, "gemm.exact: 1:30, about 3:30 left"),
        (4 * 3600.0, "gemm.exact: 1:30, about 3:58:30 left"),
        (60.0, "gemm.exact: 1:30, over its time"),
    ],
)
def test_the_time_left_is_said_where_it_is_known(
    clock: Clock, seconds: float | None, head: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert shown(clock, 80, monkeypatch, seconds=seconds).splitlines()[0].rstrip() == head


def test_a_pipe_and_a_dumb_terminal_get_lines(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(open_progress(io.StringIO(), monotonic=clock), Lines)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(open_progress(Terminal(), monotonic=clock), Lines)


def test_a_real_terminal_is_left_as_it_was(clock: Clock) -> None:
    primary, secondary = pty.openpty()
    with os.fdopen(secondary, "w", encoding="utf-8") as out:
        bars = open_progress(out, monotonic=clock)
        assert isinstance(bars, Bars)
        bars.devices(devices(2))
        bars.note("a [red]note[/red]")
        bars.close()
        bars.close()
    written = _all_of(primary)
    assert "a [red]note[/red]" in written, "no markup in what a host says"
    assert written.rindex("\x1b[?25h") > written.rindex("\x1b[?25l"), "the cursor is shown again"


def _all_of(primary: int) -> str:
    """What was written to a terminal whose other end is closed."""
    written = b""
    with contextlib.suppress(OSError):  # Linux: EIO after the last byte
        while chunk := os.read(primary, 1 << 16):
            written += chunk
    os.close(primary)
    return written.decode()
