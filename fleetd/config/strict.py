"""YAML into frozen dataclasses, strictly: every mistake is one line `file:line: message`.

Understood are dataclasses (also nested), unions of dataclasses told apart by a field with a `Literal` type, optional
values, tuples, mappings with string or enumeration keys, `Path`, enumerations, literals and plain scalars. What a
dataclass refuses in `__post_init__` by a ValueError is reported at the line of the key that the message begins with,
else where its mapping begins. A quantity that ends in `_seconds` is from 0 to ten years, whoever owns it. Anchors,
aliases, tags and merge keys are not understood: a configuration says what it means where it says it.
"""

import difflib
import functools
import math
import operator
import re
import types
import typing
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec
import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from fleetd.config.text import ConfigError, complaint

__all__ = ["API_VERSION", "ConfigError", "Document", "load", "read"]

T = TypeVar("T")

API_VERSION = "fleetd/v1"
MAX_FILE_BYTES = 256 * 1024
MAX_DEPTH = 32
"""No file of ours comes near these; a file that does is not one of ours."""
MAX_SECONDS = 10 * 365 * 86400
"""Ten years, longer than hardware is kept: a longer time is a slip of the unit, and sums of times stay exact."""

_HEADER = ("apiVersion", "kind")
_FIRST_WORD = re.compile(r"`?([a-z0-9_]+)")
_EXPONENT = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+")
_DECIMAL = re.compile(r"[-+]?(0|[1-9][0-9]*)?(\.[0-9]*)?([eE][-+]?[0-9]+)?")
_PLAIN_TAGS = frozenset(f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Document(Generic[T]):
    """A file that was read: its value, and where in the file each part stands."""

    value: T
    lines: Mapping[str, int]
    """Path such as `rules[2].when` → line; the whole file is the path ``."""

    def line_of(self, path: str) -> int:
        """Line of a part, or of the nearest part around it that stands in the file."""
        while path and path not in self.lines:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return self.lines[path]


def load(path: Path, cls: type[T], *, kind: str) -> T:
    """Read a file with the header `apiVersion: fleetd/v1`, `kind: KIND`. Raises ConfigError."""
    return read(path, cls, kind=kind).value


def read(path: Path, cls: type[T], *, kind: str) -> Document[T]:
    """Read a file and keep the lines. Raises ConfigError."""
    text = _text(path)
    root = _compose(path, text)
    if not isinstance(root, MappingNode):
        raise ConfigError(path, _line(root), "expected a mapping at the top of the file")
    builder = _Builder(path)
    for key, expected in zip(_HEADER, (API_VERSION, kind), strict=True):
        builder.header(root, key, expected)
    value = builder.dataclass(root, cls, "", ignore=_HEADER)
    return Document(value=value, lines=builder.lines)


# ── text ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _text(path: Path) -> str:
    try:
        if path.exists() and not path.is_file():
            raise ConfigError(path, None, "is not a regular file")
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError(path, None, "there is no such file") from None
    except (OSError, ValueError) as error:  # ValueError: a name with a NUL in it
        raise ConfigError(path, None, f"cannot be read: {getattr(error, 'strerror', error)}") from None
    if len(content) > MAX_FILE_BYTES:
        raise ConfigError(path, None, f"is larger than {MAX_FILE_BYTES} bytes; this is no configuration")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise ConfigError(path, line, "is not UTF-8 text") from None


def _compose(path: Path, text: str) -> Node:
    """Parse by libyaml, in a tenth of the time; what it refuses is read again in Python, for the same words."""
    try:
        with suppress(yaml.YAMLError):
            return _parse(path, text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        return _parse(path, text, yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = error.problem or error.context or "cannot be parsed"
        raise ConfigError(path, mark.line + 1 if mark else None, f"not valid YAML: {problem}") from None
    except yaml.reader.ReaderError as error:
        line = text[: error.position].count("\n") + 1
        raise ConfigError(path, line, f"not valid YAML: {error.reason}") from None


def _parse(path: Path, text: str, loader: Any) -> Node:
    """Compose, after a look at the flat stream of events: composing is recursive, so its depth is bounded here."""
    depth = 0
    for event in yaml.parse(text, Loader=loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        line = event.start_mark.line + 1 if event.start_mark else 1
        if depth > MAX_DEPTH:
            raise ConfigError(path, line, f"is nested more than {MAX_DEPTH} levels deep")
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise ConfigError(path, line, "anchors and aliases are not supported; write the value out")
        if tag := getattr(event, "tag", None):
            raise ConfigError(path, line, f"tags such as {tag} are not supported")
    root = yaml.compose(text, Loader=loader)
    if root is None:
        raise ConfigError(path, 1, "is empty")
    return root


def _line(node: Node) -> int:
    return int(node.start_mark.line) + 1


# ── values ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class _Builder:
    """Builds values from nodes; knows the file for messages and notes the line of each part."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.lines: dict[str, int] = {}

    def _error(self, node: Node, message: str) -> ConfigError:
        return ConfigError(self._path, _line(node), message)

    def header(self, root: MappingNode, key: str, expected: str) -> None:
        found = {k.value: v for k, v in root.value if isinstance(k, ScalarNode)}.get(key)
        if found is None:
            raise self._error(root, f"`{key}: {expected}` is missing")
        if not isinstance(found, ScalarNode) or found.value != expected:
            got = f"`{found.value:.40}`" if isinstance(found, ScalarNode) else "a collection"
            raise self._error(found, f"{key} must be `{expected}`, not {got}")

    def dataclass(self, node: Node, cls: type[T], path: str, *, ignore: tuple[str, ...] = ()) -> T:
        declared: dict[str, Field[Any]] = {f.name: f for f in fields(cls) if f.init}  # type: ignore[arg-type]
        hints, values = get_type_hints(cls, include_extras=True), dict[str, Any]()
        self.lines[path] = _line(node)
        for key_node, key, value_node in self._pairs(node, path):
            if key in ignore:
                continue
            if key not in declared:
                near = [d for d in declared if d.startswith(key)] or difflib.get_close_matches(key, declared, n=1)
                hint = f"; did you mean `{near[0]}`?" if near else f"; there are: {', '.join(declared)}"
                raise self._error(key_node, f"unknown key `{_join(path, key):.200}`{hint}")
            self.lines[_join(path, key)] = _line(key_node)
            values[key] = self.value(value_node, hints[key], _join(path, key))
        for name, declaration in declared.items():
            if name not in values and declaration.default is MISSING and declaration.default_factory is MISSING:
                raise self._error(node, f"`{_join(path, name)}` is missing")
        try:
            return cls(**values)
        except ValueError as error:
            message = f"{path}: {error}" if path else str(error)
            raise ConfigError(self._path, self._line_of_key(str(error), path), message) from None

    def _line_of_key(self, message: str, path: str) -> int:
        """The line of the key that a message begins with, else that of its mapping."""
        word = _FIRST_WORD.match(message)
        return self.lines.get(_join(path, word[1]) if word is not None else path, self.lines[path])

    def _pairs(self, node: Node, path: str) -> Iterator[tuple[Node, str, Node]]:
        where = f"`{path}`" if path else "the file"
        if not isinstance(node, MappingNode):
            raise self._error(node, f"{where}: expected a mapping, got {_shape(node)}")
        seen: dict[str, int] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, ScalarNode) or key_node.tag != "tag:yaml.org,2002:str":
                shown = f"`{key_node.value:.40}`" if isinstance(key_node, ScalarNode) else _shape(key_node)
                raise self._error(key_node, f"{where}: a key must be text, got {shown}; put it in quotes")
            key = str(key_node.value)
            if key in seen:
                raise self._error(
                    key_node, f"`{_join(path, key):.200}` stands a second time; first in line {seen[key]}"
                )
            seen[key] = _line(key_node)
            yield key_node, key, value_node

    def value(self, node: Node, hint: Any, path: str) -> Any:
        """Build a value of any supported type."""
        self.lines.setdefault(path, _line(node))
        origin = get_origin(hint)
        if origin in (typing.Union, types.UnionType):
            return self._union(node, get_args(hint), path)
        if is_dataclass(hint):
            return self.dataclass(node, typing.cast("type[Any]", hint), path)
        if origin is tuple:
            return self._tuple(node, hint, path)
        if isinstance(origin, type) and issubclass(origin, Mapping):
            key_type, value_type = get_args(hint)
            return {
                self._leaf(key_node, key, key_type, f"key of {path}"): self.value(v, value_type, _join(path, key))
                for key_node, key, v in self._pairs(node, path)
            }
        return self._scalar(node, hint, path)

    def _union(self, node: Node, members: tuple[Any, ...], path: str) -> Any:
        if _is_null(node) and types.NoneType in members:
            return None
        structs = [m for m in members if is_dataclass(m)]
        others = [m for m in members if m is not types.NoneType and not is_dataclass(m)]
        if structs and (isinstance(node, MappingNode) or not others):
            return self.dataclass(node, self._alternative(node, structs, path), path)
        lists = [m for m in others if get_origin(m) is tuple]
        if len(others) == 1 or (lists and isinstance(node, SequenceNode)):
            return self.value(node, (lists or others)[0], path)
        return self._scalar(node, functools.reduce(operator.or_, [m for m in others if m not in lists]), path)

    def _alternative(self, node: Node, structs: list[Any], path: str) -> Any:
        """The dataclass that a tagged union means: the one whose Literal field has the value in the file."""
        if len(structs) == 1:
            return structs[0]
        tags: dict[tuple[str, str], Any] = {
            (name, str(tag)): struct
            for struct in structs
            for name, hint in get_type_hints(struct).items()
            if get_origin(hint) is Literal
            for tag in get_args(hint)
        }
        for _, key, value_node in self._pairs(node, path):
            if isinstance(value_node, ScalarNode) and (key, value_node.value) in tags:
                return tags[key, value_node.value]
        known = ", ".join(f"`{name}: {tag}`" for name, tag in tags)
        raise self._error(node, f"`{path}` must be one of those with {known}")

    def _tuple(self, node: Node, hint: Any, path: str) -> tuple[Any, ...]:
        item, *rest = get_args(hint)
        if rest != [...]:
            raise TypeError(f"{hint} at {path} is not supported: use tuple[X, ...]")
        if not isinstance(node, SequenceNode):
            raise self._error(node, f"`{path}`: expected a list, got {_shape(node)}")
        return tuple(self.value(child, item, f"{path}[{n}]") for n, child in enumerate(node.value))

    def _scalar(self, node: Node, hint: Any, path: str) -> Any:
        if not isinstance(node, ScalarNode):
            raise self._error(node, f"`{path}`: expected a single value, got {_shape(node)}")
        number = node.tag in ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
        if node.tag not in _PLAIN_TAGS or (number and not _DECIMAL.fullmatch(node.value)):
            # YAML 1.1 reads 1:30 as 90, 010 as 8 and 2026-01-01 as a date; whoever wrote it rarely means that.
            raise self._error(
                node, f"`{path}`: `{node.value:.40}` is ambiguous; write a plain number, or text in quotes"
            )
        try:
            plain = yaml.SafeLoader("").construct_object(node)
            if isinstance(plain, str) and not node.style and float in (hint, *get_args(hint)):
                plain = float(plain) if _EXPONENT.fullmatch(plain) else plain  # 1e3: a number, but text to YAML 1.1
        except ValueError:
            raise self._error(node, f"`{path}`: `{node.value[:20]}` cannot be read as a number") from None
        if (wrong := complaint(plain, file_name=hint is Path)) is not None:
            raise self._error(node, f"`{path}`: {wrong}")
        if isinstance(plain, float) and not math.isfinite(plain):
            raise self._error(node, f"`{path}`: `{node.value[:20]}` is not a finite number")
        if path.endswith("_seconds") and isinstance(plain, int | float) and not 0 <= plain <= MAX_SECONDS:
            raise self._error(node, f"`{path}` must be from 0 to {MAX_SECONDS} seconds (ten years), not {plain:.20g}")
        return self._leaf(node, plain, hint, f"`{path}`")

    def _leaf(self, node: Node, plain: Any, hint: Any, where: str) -> Any:
        if hint is Path:
            if not isinstance(plain, str) or not plain:
                raise self._error(node, f"{where}: expected a file name")
            return Path(plain)
        if isinstance(hint, type) and issubclass(hint, IntEnum):  # a scale is written by the names of its steps
            names = {step.name.lower(): step for step in hint}
            if plain not in names:
                raise self._error(node, f"{where}: `{plain!s:.40}` is none of {', '.join(names)}")
            return names[plain]
        if isinstance(plain, bool) and (hint is str or _choices(hint)):
            plain = node.value  # `off` is a word where a word is asked for
        try:
            return msgspec.convert(plain, hint, strict=True)
        except msgspec.ValidationError as error:
            choices = _choices(hint)
            if choices:
                raise self._error(node, f"{where}: `{plain!s:.40}` is none of {', '.join(choices)}") from None
            raise self._error(node, f"{where}: {str(error)[:1].lower()}{str(error)[1:]}") from None


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _is_null(node: Node) -> bool:
    return isinstance(node, ScalarNode) and node.tag == "tag:yaml.org,2002:null"


def _shape(node: Node) -> str:
    if isinstance(node, MappingNode):
        return "a mapping"
    return "a list" if isinstance(node, SequenceNode) else "nothing" if _is_null(node) else f"`{node.value:.40}`"


def _choices(hint: Any) -> tuple[str, ...]:
    """The words that a Literal or an enumeration allows."""
    if get_origin(hint) is Literal:
        return tuple(str(v) for v in get_args(hint))
    return tuple(str(v.value) for v in hint) if hasattr(hint, "__members__") else ()
