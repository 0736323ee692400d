"""Bearer tokens: a file of digests, read again when it changes.

A line is `NAME ROLE SHA256 [EXPIRES]`; `#` begins a comment. A token has 256 random bits, so a plain SHA-256 of it is
enough: there is nothing to guess, and whoever reads the file can do nothing with it. Whoever can write it can let
himself in: a file that others than its owner may write is refused.
"""

import os
import re
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

import structlog

from fleetd.ports import Clock, Peer, PortError

_log = structlog.get_logger(__name__)

ROLES = ("operator", "viewer", "hook")
"""`hook` is for a monitor, whose configuration lies on other machines: it hands in alerts, reads nothing, changes no
host."""
READERS = frozenset({"operator", "viewer"})
"""Who may look, and so has a use for the page."""
PREFIX = "fleetd_"
"""Tokens begin so, that scanners for secrets find one that was published."""
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_FILE_BYTES_MAX = 1 << 20
TOKEN_CHARS_MAX = 256
_LOOK_S = 1.0
_YEAR_9999_S = 253370764800.0


class WebError(PortError):
    """The web server cannot be started as it is configured; one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """One line of the file."""

    peer: Peer
    digest: str
    expires_at_s: float | None
    """Wall time; None: never."""


def new_token(name: str, role: str, *, entropy: str, expires_at_s: float | None = None) -> tuple[str, str]:
    """Make a token of 256 random bits; returns it, and the line of the file that lets it in. Raises WebError."""
    _peer(name, role)
    if expires_at_s is not None and expires_at_s >= _YEAR_9999_S:
        raise WebError("it would expire after the year 9999; leave the expiry out for a token without end")
    token = PREFIX + entropy
    expires = "" if expires_at_s is None else f" {datetime.fromtimestamp(expires_at_s, UTC):%Y-%m-%dT%H:%M:%SZ}"
    return token, f"{name} {role} {digest_of(token)}{expires}"


def digest_of(token: str) -> str:
    """What the file has of a token."""
    return sha256(token.encode()).hexdigest()


def read_tokens(text: str) -> dict[str, Token]:
    """Read the lines of a file; digest → token. Raises WebError that begins with the line's number."""
    found: dict[str, Token] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        try:
            token = _token(words)
        except WebError as error:
            raise WebError(f"{number}: {error}") from None
        if token.digest in found:
            raise WebError(f"{number}: this token stands there already, for {found[token.digest].peer.name}")
        found[token.digest] = token
    return found


def _token(words: list[str]) -> Token:
    if len(words) not in {3, 4}:
        raise WebError("write NAME ROLE SHA256 [EXPIRES]; `fleetd token new` makes such a line")
    peer = _peer(words[0], words[1])
    if not _DIGEST.fullmatch(words[2]):
        raise WebError("the third word is no SHA-256: 64 digits 0 to 9 and a to f")
    expires_at_s = None
    if len(words) == 4:  # noqa: PLR2004 - the optional word
        try:
            when = datetime.fromisoformat(words[3])
        except ValueError:
            raise WebError(f"{words[3]!r:.40} is no time; write 2030-01-31 or 2030-01-31T12:00:00Z") from None
        expires_at_s = (when if when.tzinfo is not None else when.replace(tzinfo=UTC)).timestamp()
    return Token(peer=peer, digest=words[2], expires_at_s=expires_at_s)


def _peer(name: str, role: str) -> Peer:
    if not _NAME.fullmatch(name):
        raise WebError(f"{name!r:.80} is no name: letters, digits, `.`, `-`, `_`, at most 253")
    if role not in ROLES:
        raise WebError(f"{role!r:.40} is no role: one of {', '.join(ROLES)}")
    return Peer(name=name, role=role)


class TokenFile:
    """The tokens that are let in now."""

    def __init__(self, path: Path, *, clock: Clock) -> None:
        """Read the file. Raises WebError."""
        self._path = path
        self._clock = clock
        self._stamp = self._stamp_now()
        self._tokens: Mapping[str, Token] = self._read()
        self._looked_s = clock.elapsed_s()

    def peer(self, digest: str) -> Peer | None:
        """Who has the token of this digest; None: nobody, or it has expired."""
        self._look()
        token = self._tokens.get(digest)
        if token is None or (token.expires_at_s is not None and token.expires_at_s <= self._clock.wall_s()):
            return None
        return token.peer

    def _look(self) -> None:
        """Look for a new file once a second at most; one that cannot be used is said, and changes nothing."""
        now_s = self._clock.elapsed_s()
        if now_s - self._looked_s < _LOOK_S:
            return
        self._looked_s = now_s
        stamp = self._stamp_now()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._tokens = self._read()
        except WebError as error:
            _log.error("tokens not reloaded; the last good ones stay in use", why=str(error))
        else:
            _log.info("tokens reloaded", tokens=len(self._tokens))

    def _stamp_now(self) -> tuple[int, int, int]:
        try:
            status = self._path.stat()
        except OSError:
            return 0, 0, 0
        return status.st_ino, status.st_mtime_ns, status.st_size

    def _read(self) -> Mapping[str, Token]:
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe would keep us waiting
            with open(descriptor, encoding="utf-8") as file:  # noqa: PTH123 - of a descriptor
                mode = os.fstat(descriptor).st_mode
                if not stat.S_ISREG(mode):
                    raise WebError(f"{self._path}: is no regular file")
                if mode & (stat.S_IWGRP | stat.S_IWOTH):
                    raise WebError(f"{self._path}: others than its owner may write it: chmod go-w {self._path}")
                text = file.read(_FILE_BYTES_MAX + 1)
        except OSError as error:
            raise WebError(f"{self._path}: the tokens cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise WebError(f"{self._path}: the tokens are no text in UTF-8") from error
        if len(text) > _FILE_BYTES_MAX:
            raise WebError(f"{self._path}: more than {_FILE_BYTES_MAX} characters of tokens")
        try:
            return read_tokens(text)
        except WebError as error:
            raise WebError(f"{self._path}:{error}") from None


Secret = Callable[[], str]
"""Gives a new unguessable text of 43 characters (256 bits) each time (`fleetd.system`)."""
