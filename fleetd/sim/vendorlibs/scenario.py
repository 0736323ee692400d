"""The file that a fake library follows: lines `WHO WHAT = VALUE`. Each change is seen by the next call."""

from collections.abc import Mapping, Sequence
from pathlib import Path


class Scenario:
    """A scenario file, and what it says. `WHO` is a GPU's number, `*` (every GPU) or `lib`; later lines win."""

    def __init__(
        self,
        file: Path,
        *,
        library: Mapping[str, object],
        every: Mapping[str, object],
        each: Sequence[Mapping[str, object]],
    ) -> None:
        """Write the file.

        Args:
            file: is replaced.
            library: what the library answers for itself, beside how many GPUs there are.
            every: what every GPU answers.
            each: what each GPU answers, by its number.
        """
        self.file = file
        self._lines: dict[tuple[str, str], object] = {("lib", "count"): len(each)}
        self._lines |= {("lib", what): value for what, value in library.items()}
        self._lines |= {("*", what): value for what, value in every.items()}
        for gpu, own in enumerate(each):
            self._lines |= {(str(gpu), what): value for what, value in own.items()}
        self.put("lib", {})

    def put(self, who: object, values: Mapping[str, object]) -> None:
        """Say what `who` answers from now on; None takes a line away."""
        for what, value in values.items():
            self._lines.pop((str(who), what), None)  # what is said last must stand last
            if value is not None:
                self._lines[str(who), what] = value
        text = "".join(f"{who} {what} = {value}\n" for (who, what), value in self._lines.items())
        fresh = self.file.with_name(f"{self.file.name}.new")
        fresh.write_text(text, encoding="utf-8")
        fresh.replace(self.file)

    def take_back(self, who: object, *kinds: str) -> None:
        """Take back what was said of `who` that begins so (`error`, `hang`, …)."""
        self.put(who, {what: None for (name, what) in list(self._lines) if name == str(who) and what.startswith(kinds)})

    def let_go(self) -> None:
        """End every hang."""
        Path(f"{self.file}.go").touch()

    def lines(self, suffix: str) -> list[str]:
        """What the library wrote beside it: `.calls` (with `lib record = 1`); NVIDIA's also `.starts`, `.ends`."""
        try:
            text = Path(f"{self.file}{suffix}").read_text(encoding="utf-8")
        except FileNotFoundError:
            return []
        return [line.rstrip("\n") for line in text.splitlines(keepends=True) if line.endswith("\n")]
