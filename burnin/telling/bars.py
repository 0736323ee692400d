"""What a person sees while a run goes on: one line a GPU with rate, watts, temperature and disagreements, and the time.

Torch-free. It decides nothing: what is counted here as a disagreement is a vote as it stands, not yet a verdict.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import IO, Any

from burnin.spec import Ballot, Device
from burnin.tests import SELFTEST, Effort
from burnin.verdict.evidence import Cast

ROUNDS_KEPT = 64
"""Rounds whose ballots are compared; older ones are complete, and only counted."""
BAR_MIN_COLUMNS, CASE_MIN_COLUMNS = 64, 96
"""Of a terminal: below these there is no bar, and no name of the case."""
BAR_COLUMNS = 16
PER_SECOND = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1.0, ""))


class Disagreements:
    """Counts, for every GPU, the rounds in which it disagrees with itself or with what most of its kind say.

    Of a tie, as between two GPUs, every side counts.
    """

    def __init__(self, keys: Mapping[str, str]) -> None:
        """`keys`: GPU → vote key; only GPUs of one key are compared."""
        self._keys = dict(keys)
        self._rounds: OrderedDict[tuple[Any, ...], dict[str, str]] = OrderedDict()
        self._before: Counter[str] = Counter()

    def add(self, cast: Cast) -> None:
        """A ballot came in."""
        ballot = cast.ballot
        at = (cast.test, ballot.case, ballot.iteration, ballot.seed, cast.retest)
        steady = len(ballot.fingerprints) == 1
        votes = self._rounds.setdefault(at, {})
        votes[cast.gpu] = ballot.fingerprints[0][0] if steady else f"itself {cast.gpu}"
        if len(self._rounds) > ROUNDS_KEPT:
            self._before.update(self._apart(self._rounds.popitem(last=False)[1]))

    def counted(self) -> Counter[str]:
        """GPU → rounds."""
        counts = Counter(self._before)
        for votes in self._rounds.values():
            counts.update(self._apart(votes))
        return counts

    def _apart(self, votes: Mapping[str, str]) -> list[str]:
        found = []
        for key in {self._keys[gpu] for gpu in votes}:
            mine = {gpu: vote for gpu, vote in votes.items() if self._keys[gpu] == key}
            said = Counter(mine.values())
            reference, count = said.most_common(1)[0]
            agreed = reference if 2 * count > len(mine) else None
            found += [gpu for gpu, vote in mine.items() if vote != agreed or vote.startswith("itself ")]
        return found


@dataclass(slots=True)
class _Line:
    """What is shown of one GPU."""

    device: Device
    rate: str = ""
    watts: str = ""
    celsius: str = ""
    case: str = ""
    rounds: int = 0


class Bars:
    """One line for each GPU, redrawn in place; notes scroll by above them."""

    def __init__(self, out: IO[str], *, monotonic: Callable[[], float], seconds: float | None = None) -> None:
        """`seconds`: how long the run is to take; None: nobody can say."""
        self._rich = {
            name: import_module(f"rich.{name}") for name in ("console", "live", "table", "progress_bar", "text")
        }
        self._console = self._rich["console"].Console(file=out, stderr=True)
        self._monotonic, self._seconds = monotonic, seconds
        self._begun_s = self._test_s = monotonic()
        self._test, self._effort = "", Effort(launches=1, rounds=1)
        self._lines: dict[str, _Line] = {}
        self._apart = Disagreements({})
        self._live: Any = self._rich["live"].Live(
            console=self._console, get_renderable=self.drawn, refresh_per_second=4, transient=True
        )

    def devices(self, devices: tuple[Device, ...]) -> None:
        """Draw a line for each."""
        self._lines = {device.gpu: _Line(device=device, case=device.sku) for device in devices}
        self._apart = Disagreements({device.gpu: device.vote_key for device in devices})
        self._live.start()

    def test(self, test: str, effort: Effort) -> None:
        """Begin all bars anew."""
        self._test, self._effort, self._test_s = test, effort, self._monotonic()
        for line in self._lines.values():
            line.rate, line.case, line.rounds = "", "", 0

    def cast(self, cast: Cast) -> None:
        """Move one bar."""
        line, ballot, felt = self._lines[cast.gpu], cast.ballot, cast.felt
        if cast.test != SELFTEST:  # whose faults are planted: of a healthy GPU, too
            self._apart.add(cast)
        line.rate, line.case = _rate(ballot), ballot.case
        line.rounds += not cast.retest
        if felt is not None and felt.power_watts is not None:
            line.watts = f"{felt.power_watts.mean:.0f} W"
        if felt is not None and felt.temperature_celsius is not None:
            line.celsius = f"{felt.temperature_celsius.max:.0f} °C"

    def note(self, text: str) -> None:
        """Print it above the bars."""
        self._console.print(text, markup=False, highlight=False)

    def close(self) -> None:
        """Take the bars down."""
        self._live.stop()

    def drawn(self) -> Any:
        """All lines as they stand now, fitting the terminal's width."""
        wide = self._console.width
        grid = self._rich["table"].Table.grid(padding=(0, 1))
        grid.expand = False
        columns = ["gpu", *(["bar"] if wide >= BAR_MIN_COLUMNS else []), "rate", "watts", "celsius", "differ"]
        columns += ["case"] if wide >= CASE_MIN_COLUMNS else []
        for name in columns:
            right = name in {"rate", "watts", "celsius"}
            grid.add_column(no_wrap=True, overflow="ellipsis", justify="right" if right else "left")
        counts = self._apart.counted()
        for gpu, line in self._lines.items():
            cells = {
                "gpu": f"GPU {line.device.index}",
                "bar": self._bar(line),
                "rate": line.rate,
                "watts": line.watts,
                "celsius": line.celsius,
                "differ": self._differ(counts[gpu]),
                "case": self._plain(line.case),
            }
            grid.add_row(*(cells[name] for name in columns))
        return self._rich["console"].Group(self._plain(self._headline(), no_wrap=True, overflow="ellipsis"), grid)

    def _headline(self) -> str:
        passed_s = self._monotonic() - self._begun_s
        left = ""
        if self._seconds is not None:
            left_s = self._seconds - passed_s
            left = f", about {_clock(left_s)} left" if left_s > 0 else ", over its time"
        return f"{self._test or 'starting'}: {_clock(passed_s)}{left}"

    def _bar(self, line: _Line) -> Any:
        """How far a GPU is: by the time of the test if it has one, else beside the GPU that is most ahead."""
        passed_s = self._monotonic() - self._test_s
        if self._effort.seconds:
            return self._rich["progress_bar"].ProgressBar(
                total=self._effort.seconds, completed=min(passed_s, self._effort.seconds), width=BAR_COLUMNS
            )
        most = max((one.rounds for one in self._lines.values()), default=0)
        return self._rich["progress_bar"].ProgressBar(total=max(most, 1), completed=line.rounds, width=BAR_COLUMNS)

    def _differ(self, count: int) -> Any:
        return self._rich["text"].Text(f"{count} differ", style="bold red") if count else self._plain("ok")

    def _plain(self, text: str, **more: Any) -> Any:
        return self._rich["text"].Text(text, **more)


def _rate(ballot: Ballot) -> str:
    """The work of a ballot by its time; in what unit, the case says."""
    if not ballot.flops or ballot.elapsed_s <= 0:
        return ""
    rate = ballot.flops / ballot.elapsed_s
    scale, prefix = next((one for one in PER_SECOND if rate >= one[0]), PER_SECOND[-1])
    return f"{rate / scale:.3g} {prefix}/s"


def _clock(seconds: float) -> str:
    """Hours, minutes and seconds."""
    minutes, second = divmod(int(max(seconds, 0.0)), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"
