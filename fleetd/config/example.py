"""A complete configuration with every key, its default and what it means, made from the dataclasses that read it.

So the example cannot fall behind the code: a key that is added to a dataclass stands in the example at once. What a key
means is the string below its field, as everywhere in this project.
"""

import ast
import dataclasses
import inspect
import json
import re
import textwrap
import types
import typing
from collections.abc import Iterator, Mapping
from contextlib import suppress
from enum import Enum, IntEnum
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from fleetd.config.files import AgentConfig, ControllerConfig
from fleetd.config.strict import API_VERSION

KINDS: Mapping[str, type[Any]] = {"Agent": AgentConfig, "Controller": ControllerConfig}
"""The kinds of file that there is an example of, and what reads each."""

_WIDTH = 100
_INDENT = "  "
_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./-]*")
_NO_TEXT = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})
"""Words that YAML 1.1 reads as something else than text."""

_PLACEHOLDERS: Mapping[tuple[str, str], object] = {
    ("AgentConfig", "state_dir"): Path("/var/lib/fleetd"),
    ("ControllerConfig", "state_dir"): Path("/var/lib/fleetd-controller"),
    ("UplinkConfig", "address"): "controller.example:7443",
    ("UplinkConfig", "ca"): "/etc/fleetd/ca.crt",
    ("UplinkConfig", "cert"): "/etc/fleetd/agent.crt",
    ("UplinkConfig", "key"): "/etc/fleetd/agent.key",
    ("ServerConfig", "listen"): "0.0.0.0:7443",
    ("ServerConfig", "ca"): "/etc/fleetd/ca.crt",
    ("ServerConfig", "cert"): "/etc/fleetd/controller.crt",
    ("ServerConfig", "key"): "/etc/fleetd/controller.key",
    ("WebhookConfig", "url"): "https://site.example/hook",
    ("WebConfig", "cert"): "/etc/fleetd/controller.crt",
    ("WebConfig", "key"): "/etc/fleetd/controller.key",
    ("WebConfig", "ca"): "/etc/fleetd/ca.crt",
}
"""What has no default, or none that could work: a site has its own."""


def example(kind: str) -> str:
    """Return the YAML of an example. Every value in it is the default, but for names and files that are a site's own.

    Args:
        kind: one of `KINDS`.
    """
    cls = KINDS[kind]
    head = [
        f"# Every key of a file of `kind: {kind}`. What has a default stands here with it and can be left out;",
        "# addresses and files are examples. `fleetd config check FILE` says whether a file can be used.",
        f"apiVersion: {API_VERSION}",
        f"kind: {kind}",
    ]
    return "\n".join([*head, *_lines(cls, "", None)]) + "\n"


def _shown(cls: type[Any], field: dataclasses.Field[Any], given: object | None) -> object:
    """The value of a field in the example: a site's own, else the default; a class where it is to be spelt out."""
    if (cls.__name__, field.name) in _PLACEHOLDERS:
        return _PLACEHOLDERS[cls.__name__, field.name]
    if given is not None:
        return getattr(given, field.name)
    made = field.default_factory
    default = field.default if made is dataclasses.MISSING else made()
    return _required(cls, field) if default is dataclasses.MISSING else default


def _required(cls: type[Any], field: dataclasses.Field[Any]) -> object:
    """What a field without a default gets by its type; raises KeyError where that says nothing: name it above."""
    hint = get_type_hints(cls)[field.name]
    if get_origin(hint) is Literal:
        return get_args(hint)[0]
    if hint is Path:
        return Path("/etc/fleetd") / field.name
    if dataclasses.is_dataclass(hint):
        return hint
    raise KeyError(f"{cls.__name__}.{field.name} has no default: give it a value in the table of placeholders")


def _lines(cls: type[Any], indent: str, given: object | None) -> Iterator[str]:
    """The keys of a dataclass, each below its comment, with the values of `given`, else the class's own."""
    said, hints = _comments(cls), get_type_hints(cls)
    for field in dataclasses.fields(cls):
        if not field.init:
            continue
        hint, value = hints[field.name], _shown(cls, field, given)
        if indent == "":
            yield ""
        about = said.get(field.name, [])
        if dataclasses.is_dataclass(value):
            section, values = (value, None) if isinstance(value, type) else (type(value), value)
            yield from _comment(about or [_first(section)], indent)
            yield f"{indent}{field.name}:"
            yield from _lines(section, indent + _INDENT, values)
            continue
        yield from _comment([*about, *_choices(hint)], indent)
        yield f"{indent}{field.name}: {_value(value)}"
        for other in _structs(hint):  # instead of the value
            yield from _comment([f"or: {_first(other)}"], indent)
            yield from (f"{indent}# {line}" for line in [f"{field.name}:", *_lines(other, _INDENT, None)])


def _structs(hint: Any) -> list[type[Any]]:
    """The dataclasses among the alternatives of a type."""
    members = get_args(hint) if get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    return [member for member in members if isinstance(member, type) and dataclasses.is_dataclass(member)]


def _choices(hint: Any) -> list[str]:
    """The words that may stand there, where the type says which."""
    members = get_args(hint) if get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    words: list[str] = []
    for member in members:
        if get_origin(member) is Literal:
            words += [str(word) for word in get_args(member)]
        elif isinstance(member, type) and issubclass(member, IntEnum):
            words += [step.name.lower() for step in member]
        elif isinstance(member, type) and issubclass(member, Enum):
            words += [str(one.value) for one in member]
    return ["One of: " + ", ".join(words)] if len(words) > 1 else []


# ── comments ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _comment(texts: list[str], indent: str) -> Iterator[str]:
    for text in texts:
        words = re.sub(r"\bNone\b", "null", " ".join(text.split()))  # as a file says it
        yield from textwrap.wrap(
            words,
            _WIDTH,
            initial_indent=f"{indent}# ",
            subsequent_indent=f"{indent}# ",
            break_long_words=False,
            break_on_hyphens=False,
        )


def _first(cls: type[Any]) -> str:
    """The first paragraph of a class's description."""
    return (inspect.getdoc(cls) or cls.__name__).partition("\n\n")[0]


def _comments(cls: type[Any]) -> dict[str, list[str]]:
    """What stands below the fields of a class and its bases, by field.

    A string that stands below several fields of one first word (`retry_first_…`, `retry_max_…`) is about all of them,
    and goes to the first.
    """
    found: dict[str, list[str]] = {}
    for base in reversed(cls.__mro__):
        if not dataclasses.is_dataclass(base):
            continue
        together: list[str] = []
        for node in _body(base):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                name = node.target.id
                together = [n for n in together if n.split("_")[0] == name.split("_")[0]] + [name]
            elif (
                together
                and isinstance(node, ast.Expr)
                and isinstance(node.value, ast.Constant)
                and isinstance(node.value.value, str)
            ):
                found[together[0]] = inspect.cleandoc(node.value.value).split("\n\n")
                together = []
            else:
                together = []
    return found


def _body(cls: type[Any]) -> list[ast.stmt]:
    """The statements of a class; none where its source was not installed, and then there are no comments."""
    with suppress(OSError):
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
        assert isinstance(tree, ast.ClassDef)  # noqa: S101 - the source of a class is a class
        return tree.body
    return []


# ── values ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _value(value: object) -> str:
    """One value as the strict reader takes it."""
    match value:
        case None:
            text = "null"
        case bool():
            text = "true" if value else "false"
        case IntEnum():
            text = value.name.lower()
        case Enum():
            text = _value(value.value)
        case int() | float():
            text = repr(value)
        case tuple():
            text = "[" + ", ".join(_value(one) for one in value) + "]"
        case Mapping():
            text = "{" + ", ".join(f"{_value(key)}: {_value(one)}" for key, one in value.items()) + "}"
        case _:
            text = str(value)
            if not _PLAIN.fullmatch(text) or text.lower() in _NO_TEXT:
                text = json.dumps(text)
    return text
