"""Taking names and secrets out of evidence: pure, text in, text out.

Names (of hosts, GPUs, boards, addresses, users and their jobs) become pseudonyms, the same one for the same name in all
files of a bundle, so that lines about one GPU can still be told to be about one GPU. Secrets are cut out. PCI addresses
stay: a vendor needs them, and they are the same on every host.
"""

import re
from collections.abc import Iterable

_HEX = r"[0-9A-Fa-f]"
_GROUP = rf"{_HEX}{{1,4}}"
_WORDS = (
    *("passw(?:or)?d", "passphrase", "pwd", "psk", "secret", "token", "credential"),
    *("api[_-]?key", "access[_-]?key", "private[_-]?key"),
)
_CALLED = rf"[\w-]*(?:{'|'.join(_WORDS)})[\w-]*"
"""What a secret is called."""
_SECRETS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"-----BEGIN [A-Z0-9 ]+-----.*?(?:-----END [A-Z0-9 ]+-----|\Z)", re.DOTALL), "[secret]"),
    (re.compile(r"(?i)\b(bearer|basic)(\s+)[\w.~+/=-]{8,}"), r"\1\2[secret]"),
    (re.compile(r"://[^/\s:@]+:[^/\s@]+@"), "://[secret]@"),
    # `password=…`, `api_key: …`, `"token": "…"`; the name may be a part of a longer one (`DB_PASSWORD`).
    (
        re.compile(rf"(?i)({_CALLED}[\"']?\s*[:=]\s*)(?:(\")[^\"\n]*\"|(')[^'\n]*'|[^\s,;}}\]\"']+)"),
        r"\1\2\3[secret]\2\3",
    ),
    (re.compile(rf"(?i)(--{_CALLED}\s+)[^\s-]\S*"), r"\1[secret]"),  # `--password …` of a command line
    (re.compile(r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"), "[secret]"),  # JSON Web Tokens begin so
)
_NAMES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("uuid", re.compile(rf"(?:(?:GPU|MIG)-)?\b{_HEX}{{8}}(?:-{_HEX}{{4}}){{3}}-{_HEX}{{12}}\b")),
    ("mac", re.compile(rf"(?<![\w:])(?:{_HEX}{{2}}:){{5}}{_HEX}{{2}}(?![\w:])")),
    ("ip", re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?!\w|\.\d)")),
    ("ip", re.compile(rf"(?<![\w:.])(?:{_HEX}{{1,4}}:){{7}}{_HEX}{{1,4}}(?![\w:])")),
    ("ip", re.compile(rf"(?<![\w:.])(?:{_GROUP}(?::{_GROUP}){{0,6}})?::(?:{_GROUP}:){{0,6}}{_GROUP}(?![\w:])")),
    ("mail", re.compile(r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+")),
)
"""Kind → what such a name looks like."""
_SERIAL = re.compile(
    r"(?i)((?:serial[ _-]?(?:number|num|no\b\.?)[\"']?\s*[:=]?|(?:serial|asset[ _-]?tag|\bs/n)[\"']?\s*[:=])\s*[\"']?)"
    r"([0-9A-Za-z][0-9A-Za-z./-]{2,})"
)
_USER = re.compile(r'\b(user|account|namespace|pod|container)="((?:[^"\\\n]|\\.)+)"')
"""Labels of metrics that say who works here, and on what."""
_WITH_DOMAIN = frozenset({"host", "controller"})
_LOOPBACK = frozenset({"127.0.0.1", "0.0.0.0", "::1"})  # noqa: S104 - recognised, not bound to
_NAMES_MAX = 10_000
"""Pseudonyms of a bundle; a text that has more names is cut out from there on."""


class Redactor:
    """Gives each name its pseudonym. One for a whole bundle."""

    def __init__(self, known: Iterable[tuple[str, str]] = ()) -> None:
        """`known`: kind and name of what is to be replaced wherever it stands, such as ("host", "node17")."""
        self._pseudonyms: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        self._known = {name.lower(): kind for kind, name in known if name}
        longest_first = "|".join(map(re.escape, sorted(self._known, key=len, reverse=True)))
        # As a word of its own: a host that is called `a` must not take every letter with it. And however it is written:
        # names of hosts have no case.
        known_word = rf"(?i)(?<!\w)({longest_first})(?!\w)((?:\.[a-z][\w-]*)*)"
        self._known_pattern = re.compile(known_word) if longest_first else None

    def text(self, text: str) -> str:
        """The text without names and secrets."""
        for pattern, instead in _SECRETS:
            text = pattern.sub(instead, text)
        if self._known_pattern is not None:
            text = self._known_pattern.sub(self._named, text)
        text = _USER.sub(lambda found: f'{found[1]}="{self._pseudonym(found[1], found[2])}"', text)
        text = _SERIAL.sub(lambda found: found[1] + self._pseudonym("serial", found[2]), text)
        for kind, pattern in _NAMES:
            text = pattern.sub(lambda found, kind=kind: self._found(kind, found[0]), text)  # type: ignore[misc]
        return text

    def _named(self, found: re.Match[str]) -> str:
        """A known name; of a host together with the domain behind it, which names the site."""
        kind = self._known[found[1].lower()]
        return self._pseudonym(kind, found[1]) + ("" if kind in _WITH_DOMAIN else found[2])

    def _found(self, kind: str, name: str) -> str:
        return name if name in _LOOPBACK else self._pseudonym(kind, name)

    def _pseudonym(self, kind: str, name: str) -> str:
        key = name.lower()
        if key not in self._pseudonyms:
            if len(self._pseudonyms) >= _NAMES_MAX:
                return f"[{kind}]"
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._pseudonyms[key] = f"[{kind}-{self._counts[kind]}]"
        return self._pseudonyms[key]
