"""What parent and child say to each other: one JSON object a line, dataclasses on both ends. Torch-free.

JSON and not the interpreter's object serialisation: a child whose memory is being corrupted must not be able to make
the parent run anything.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from dataclasses import fields as fields_of
from math import isfinite
from typing import Any, TypeVar

from burnin.spec import Ballot, Elements, Inject
from burnin.verdict.health import QUANTITIES, Felt, Spread

T = TypeVar("T")

MAX_LINE = 8 << 20
"""Bytes of one message; a child that sends more is broken and is ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Discover:
    """List the devices and the processes that use them. Answer: `found`."""

    backend: str
    gpus: int | None
    host: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ListCases:
    """Cases of one workload; with `inject`, also check that the fault can change one of them. Answer: `cases`."""

    test: str
    workload: str
    inject: Inject | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """One iteration of one case. Answer: `ballot`."""

    test: str
    workload: str
    case: str
    iteration: int
    seed: int
    launches: int
    inject: Inject | None = None
    start_s: float | None = None
    """When all GPUs begin, on the host's monotonic clock; None: at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prove:
    """Compute the golden of one (case, seed). Answer: `proof`."""

    test: str
    workload: str
    case: str
    seed: int
    inject: Inject | None = None
    core: int | None = None
    """The core of the host's CPU that is to check, alone; None: any of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Examine:
    """Compute a wrong result again and find its wrong elements; see `Workload.examine`. Answer: `elements` or null."""

    test: str
    workload: str
    case: str
    seed: int
    launches: int
    right: str | None
    tiles: tuple[int, ...]
    inject: Inject | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """Read this GPU's health counters. Answer: `counters`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckCores:
    """Compute a golden on two CPU cores. Answer: `cores`."""

    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """Give memory back and leave this GPU alone for so long. Answer: what it feels then, `felt`."""

    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Read how these GPUs are set and what is in use of them. Answer: `found`, GPU → `Settings`."""

    backend: str
    gpus: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookout:
    """Look after the GPUs until others use them, as long as it takes. Answer: `users`, GPU → process ids."""

    backend: str
    gpus: tuple[str, ...]
    own: tuple[int, ...]
    """Processes of this run."""


Request = Discover | ListCases | Vote | Prove | Examine | Count | CheckCores | Rest | Look | Lookout
REQUESTS: Mapping[str, type[Request]] = {
    cls.__name__: cls for cls in (Discover, ListCases, Vote, Prove, Examine, Count, CheckCores, Rest, Look, Lookout)
}


class WireError(ValueError):
    """The other end sent something that is no message; one line."""


def encode(message: Mapping[str, Any]) -> bytes:
    """One line of JSON."""
    return json.dumps(message, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def decode(line: bytes) -> dict[str, Any]:
    """Read one line.

    Raises:
        WireError: It is no JSON object.
    """
    try:
        message = json.loads(line, parse_constant=_finite, parse_float=_finite)
    except ValueError as error:
        raise WireError(f"not JSON: {line[:80]!r}") from error
    if not isinstance(message, dict):
        raise WireError(f"not an object: {line[:80]!r}")
    return message


def _finite(value: str | float) -> float:
    """A number that a JSON report can hold. Raises ValueError for NaN, infinities and what is none."""
    number = float(value)
    if not isfinite(number):
        raise ValueError(f"{value} is no number")
    return number


def plain(answer: Ballot) -> dict[str, Any]:
    """A ballot as a JSON object.

    Its fields are not copied: with the tiles of a large product `asdict` takes 2 ms, in which the GPU is idle.
    """
    return {field.name: getattr(answer, field.name) for field in fields_of(answer)}


def pack(request: Request) -> dict[str, Any]:
    """A request as a JSON object."""
    return {"do": type(request).__name__, "with": asdict(request)}


def unpack(message: Mapping[str, Any]) -> Request:
    """The request in a JSON object that `pack` made.

    Raises:
        WireError: It is none.
    """
    try:
        fields = dict(message["with"])
        if fields.get("inject") is not None:
            fields["inject"] = Inject(**fields["inject"])
        for name, kind in (("tiles", int), ("own", int), ("gpus", str)):
            if isinstance(fields.get(name), list):
                fields[name] = tuple(map(kind, fields[name]))
        return REQUESTS[message["do"]](**fields)
    except (KeyError, TypeError, ValueError) as error:
        raise WireError(f"not a request: {message!r:.80}") from error


def part(message: Mapping[str, Any], key: str) -> dict[str, Any]:
    """The object under a key of an answer. Raises WireError when there is none."""
    value = message.get(key)
    if not isinstance(value, dict):
        raise WireError(f"an answer without {key!r}: {message!r:.80}")
    return value


def made(cls: type[T], fields: Mapping[str, Any]) -> T:
    """A flat dataclass from its JSON object. Raises WireError when the fields are not its fields."""
    try:
        return cls(**fields)
    except TypeError as error:
        raise WireError(f"not a {cls.__name__}: {fields!r:.80}") from error


_PLAIN: Mapping[str, Callable[[Any], str | int | float]] = {
    **dict.fromkeys(("iteration", "seed", "launches", "bytes", "flops", "fired", "outside"), int),
    "case": str,
    "elapsed_s": _finite,
}
"""Fields of a ballot that are no tuples, and what they must be."""


def ballot(fields: Mapping[str, Any]) -> Ballot:
    """A `Ballot` from its JSON object. Raises WireError when it is none or contradicts itself."""
    try:
        fingerprints = tuple((str(name), int(count)) for name, count in fields["fingerprints"])
        trace = tuple((str(name), str(value)) for name, value in fields["trace"])
        tiles = tuple(map(int, fields["tiles"]))
        facts = tuple((str(name), _finite(value)) for name, value in fields.get("facts", ()))
        plain_ones = {name: kind(fields[name]) for name, kind in _PLAIN.items() if name in fields}
        parts = {"fingerprints": fingerprints, "trace": trace, "tiles": tiles, "facts": facts}
        cast = Ballot(**{**fields, **plain_ones, **parts})
    except (KeyError, TypeError, ValueError) as error:
        raise WireError(f"not a ballot: {fields!r:.80}") from error
    if cast.made < 1 or cast.launches not in {0, cast.made}:
        raise WireError(f"a ballot of {cast.launches} launches with other fingerprints: {fingerprints!r:.80}")
    return cast


def felt(fields: Mapping[str, Any]) -> Felt:
    """A `Felt` from its JSON object. Raises WireError when it is none."""
    try:
        spreads = {
            name: Spread(**{end: _finite(value) for end, value in fields[name].items()})
            if fields.get(name) is not None
            else None
            for name in QUANTITIES
        }
        limit = fields.get("power_limit_watts")
        return Felt(
            limits=tuple(map(str, fields.get("limits", ()))),
            readings=int(fields.get("readings", 0)),
            power_limit_watts=_finite(limit) if limit is not None else None,
            **spreads,
        )
    except (AttributeError, TypeError, ValueError) as error:
        raise WireError(f"not what a GPU felt: {fields!r:.80}") from error


def elements(fields: Mapping[str, Any]) -> Elements:
    """An `Elements` from its JSON object. Raises WireError when it is none."""
    try:
        bits = tuple((int(bit), int(times)) for bit, times in fields["bits"])
        row, column = map(int, fields["first"])
        return Elements(**{**fields, "bits": bits, "first": (row, column)})
    except (KeyError, TypeError, ValueError) as error:
        raise WireError(f"not the elements of a result: {fields!r:.80}") from error
