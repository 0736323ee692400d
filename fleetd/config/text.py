"""What the texts and numbers of a configuration may be, and how a message quotes what stands in one."""

import re
from pathlib import Path

INTEGER_MAX = 2**53
"""Beyond it a double cannot count, and libraries written in C soon cannot either; no quantity comes near it."""
NAME_BYTES_MAX = 255
PATH_BYTES_MAX = 4095
"""What Linux takes (NAME_MAX; PATH_MAX, which counts a NUL at the end)."""
MESSAGE_CHARS_MAX = 1000


_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


class ConfigError(Exception):
    """A configuration that cannot be used; `str` is `file:line: message`, without the line when there is none.

    The message becomes one short line without control characters: it may quote what stands in the file.
    """

    def __init__(self, path: Path, line: int | None, message: str) -> None:
        message = one_line(message)
        super().__init__(f"{path}:{line}: {message}" if line is not None else f"{path}: {message}")
        self.path = path
        self.line = line
        self.message = message


def one_line(message: str) -> str:
    """Return it as one line that a terminal only prints, cut where it is longer than anybody reads."""
    flat = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in " ".join(message.split()))
    return flat if len(flat) <= MESSAGE_CHARS_MAX else f"{flat[:MESSAGE_CHARS_MAX]}…"


def complaint(plain: object, *, file_name: bool) -> str | None:
    """Say what is wrong with a scalar whatever it is for; None: nothing.

    Args:
        plain: as YAML reads it.
        file_name: whether it is to name a file.
    """
    if isinstance(plain, int) and abs(plain) > INTEGER_MAX:
        return f"the number is beyond ±{INTEGER_MAX}"
    if not isinstance(plain, str):
        return None
    if (control := _CONTROL.search(plain)) is not None:
        return f"holds the control character U+{ord(control[0]):04X}"
    raw = plain.encode("utf-8", "surrogatepass") if file_name else b""
    if len(raw) > PATH_BYTES_MAX or any(len(part) > NAME_BYTES_MAX for part in raw.split(b"/")):
        return f"is longer than a file name may be: {NAME_BYTES_MAX} bytes a part, {PATH_BYTES_MAX} in all"
    return None
