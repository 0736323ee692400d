"""Reads a part's YAML, strictly: every constant is there, with a source that the file names, or is null. Torch-free.

A published constant is a pair, `[value, source]`; the sources stand in the file, by a short name. The block `fitted` is
written by `tests/bench/bench_roofline.py` and has one source: its `verified`.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from typing import Any

import yaml

from burnin.parts.part import DtypeFit, Fitted, Older, Part, Peer, PeerFit, Power, Tile, Verified
from burnin.spec import SpecError


class PartError(SpecError):
    """A part that nobody knows, or a file about one that is not right; one line."""


class _Loader(yaml.SafeLoader):
    """Refuses a key that stands twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """The mapping of a node. Raises PartError for a duplicate."""
        seen = set()
        for key, _ in node.value:
            if key.value in seen:
                raise PartError(f"line {key.start_mark.line + 1}: {key.value} stands twice")
            seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


def parse(text: str, where: str) -> Part:
    """Read one part.

    Args:
        text: the YAML.
        where: its name in errors.

    Raises:
        PartError: with `where` and the place in it.
    """
    try:
        loaded = yaml.load(text, Loader=_Loader)  # noqa: S506 - a SafeLoader
        return _part(_mapping(loaded, "the file"))
    except yaml.YAMLError as error:
        raise PartError(f"{where}: no YAML: {' '.join(str(error).split())}") from None
    except PartError as error:
        raise PartError(f"{where}: {error}") from None


def _part(raw: Mapping[str, Any]) -> Part:
    names = {field.name for field in fields(Part)}
    _known(raw, names, "the part")
    titles = {name: str(text) for name, text in _mapping(raw["sources"], "sources").items()}
    sources: dict[str, str] = {}

    def published(name: str, read: Callable[[Any, str], Any]) -> Any:
        value = raw[name]
        if value is None:
            return None
        if not isinstance(value, list) or len(value) != 2:  # noqa: PLR2004 - a pair
            raise PartError(f"{name}: write [value, source], or null where nobody knows")
        if value[1] not in titles:
            raise PartError(f"{name}: the source {value[1]!r} is none of {', '.join(titles)}")
        sources[name] = titles[value[1]]
        return read(value[0], name)

    part = Part(
        name=str(raw["name"]),
        title=str(raw["title"]),
        vendor=str(raw["vendor"]),
        skus=tuple(str(sku) for sku in _list(raw["skus"], "skus")),
        units=_present(published("units", _whole), "units"),
        chiplets=_present(published("chiplets", _whole), "chiplets"),
        clock_max_hertz=_present(published("clock_max_hertz", _number), "clock_max_hertz"),
        flops_per_clock=_present(published("flops_per_clock", _each(_whole)), "flops_per_clock"),
        shared_bytes_per_clock=published("shared_bytes_per_clock", _whole),
        wave_tile=_present(published("wave_tile", _tile), "wave_tile"),
        tiles=_present(published("tiles", _tiles), "tiles"),
        l2_bytes=_present(published("l2_bytes", _whole), "l2_bytes"),
        llc_bytes=published("llc_bytes", _whole),
        llc_bytes_per_second=published("llc_bytes_per_second", _number),
        hbm_bytes=_present(published("hbm_bytes", _whole), "hbm_bytes"),
        hbm_bytes_per_second=_present(published("hbm_bytes_per_second", _number), "hbm_bytes_per_second"),
        tdp_watts=_present(published("tdp_watts", _number), "tdp_watts"),
        peer=_present(published("peer", _peer), "peer"),
        sources=sources,
        fitted=None if raw["fitted"] is None else _fitted(_mapping(raw["fitted"], "fitted")),
        peer_fitted=None if raw["peer_fitted"] is None else _peer_fitted(_mapping(raw["peer_fitted"], "peer_fitted")),
    )
    _sane(part)
    return part


def _sane(part: Part) -> None:
    """What the reader of one value cannot see. Raises PartError."""
    if part.units % part.chiplets:
        raise PartError(f"units: {part.units} cannot be dealt to {part.chiplets} chiplets")
    if part.llc_bytes is None and part.llc_bytes_per_second is not None:
        raise PartError("llc_bytes_per_second: of a cache that is not there (llc_bytes)")
    if part.fitted is not None:
        strange = sorted(part.fitted.dtypes.keys() - part.flops_per_clock.keys())
        if strange:
            raise PartError(f"fitted.dtypes: {', '.join(strange)}: not in flops_per_clock")
        older = part.fitted.older.dtypes if part.fitted.older is not None else ()
        strange = sorted(set(older) - part.flops_per_clock.keys())
        if strange:
            raise PartError(f"fitted.older: {', '.join(strange)}: not in flops_per_clock")
        if part.fitted.clock_hertz > part.clock_max_hertz:
            raise PartError("fitted.clock_hertz is above clock_max_hertz")
        if part.fitted.error_p90 is not None and part.fitted.error_p90 >= 1.0:
            raise PartError("fitted.error_p90: constants that miss by the whole say nothing")
        if part.fitted.softness is not None and part.fitted.softness < 1.0:
            raise PartError("fitted.softness: at least 1, one level after the other")
        if part.fitted.l2_bytes_per_second == 0.0:
            raise PartError("fitted.l2_bytes_per_second: null where it was not measured")


def _fitted(raw: Mapping[str, Any]) -> Fitted:
    _known(raw, {field.name for field in fields(Fitted)}, "fitted")
    power = raw["power"]
    dtypes = _mapping(raw["dtypes"], "fitted.dtypes")
    return Fitted(
        verified=_verified(raw["verified"], "fitted.verified"),
        unaligned={int(key): _share(raw["unaligned"][key], f"fitted.unaligned.{key}") for key in raw["unaligned"]},
        power=None if power is None else _flat(Power, power, "fitted.power"),
        data={str(key): _number(value, f"fitted.data.{key}", low=0.0) for key, value in raw["data"].items()},
        dtypes={str(name): _dtype(fit, f"fitted.dtypes.{name}") for name, fit in dtypes.items()},
        hbm_share=_share(raw["hbm_share"], "fitted.hbm_share"),
        clock_hertz=_number(raw["clock_hertz"], "fitted.clock_hertz"),
        launch_seconds=_number(raw["launch_seconds"], "fitted.launch_seconds"),
        error_p90=_maybe(raw["error_p90"], "fitted.error_p90"),
        cache_share=None if raw["cache_share"] is None else _share(raw["cache_share"], "fitted.cache_share"),
        older=None if raw["older"] is None else _older(_mapping(raw["older"], "fitted.older")),
        copy_share=_maybe(raw["copy_share"], "fitted.copy_share"),
        fill_clocks=_maybe(raw["fill_clocks"], "fitted.fill_clocks"),
        tile_clocks=_maybe(raw["tile_clocks"], "fitted.tile_clocks"),
        l2_bytes_per_second=_maybe(raw["l2_bytes_per_second"], "fitted.l2_bytes_per_second"),
        softness=_maybe(raw["softness"], "fitted.softness"),
    )


def _dtype(raw: Any, where: str) -> DtypeFit:
    _known(_mapping(raw, where), {"share", "watts"}, where)
    return DtypeFit(share=_share(raw["share"], f"{where}.share"), watts=_maybe(raw["watts"], f"{where}.watts"))


def _older(raw: Mapping[str, Any]) -> Older:
    _known(raw, {field.name for field in fields(Older)}, "fitted.older")
    if not isinstance(raw["dtypes"], list):  # may be empty
        raise PartError("fitted.older.dtypes: a list is wanted")
    return Older(
        dtypes=tuple(str(name) for name in raw["dtypes"]),
        tiles=_tiles(raw["tiles"], "fitted.older.tiles"),
        share=_share(raw["share"], "fitted.older.share"),
        tile_clocks=_number(raw["tile_clocks"], "fitted.older.tile_clocks", low=0.0),
        store_clocks=_number(raw["store_clocks"], "fitted.older.store_clocks", low=0.0),
        softness=_number(raw["softness"], "fitted.older.softness", low=1.0),
    )


def _peer_fitted(raw: Mapping[str, Any]) -> PeerFit:
    _known(raw, {field.name for field in fields(PeerFit)}, "peer_fitted")
    return PeerFit(
        verified=_verified(raw["verified"], "peer_fitted.verified"),
        gpus=_whole(raw["gpus"], "peer_fitted.gpus"),
        share=_share(raw["share"], "peer_fitted.share"),
        step_seconds=_maybe(raw["step_seconds"], "peer_fitted.step_seconds"),
        launch_seconds=_number(raw["launch_seconds"], "peer_fitted.launch_seconds"),
    )


def _verified(raw: Any, where: str) -> Verified:
    _known(_mapping(raw, where), {field.name for field in fields(Verified)}, where)
    texts = {name: str(raw[name]) for name in ("date", "driver", "torch")}
    return Verified(points=_whole(raw["points"], f"{where}.points"), **texts)


def _flat(kind: type[Power], raw: Any, where: str) -> Power:
    """A class of nothing but numbers that may be zero."""
    names = {field.name for field in fields(kind)}
    _known(_mapping(raw, where), names, where)
    return kind(**{name: _number(raw[name], f"{where}.{name}", low=0.0) for name in names})


def _peer(raw: Any, where: str) -> Peer:
    names = {field.name for field in fields(Peer) if field.default is MISSING}
    _known(_mapping(raw, where), names, where)
    if raw["topology"] not in {"switch", "mesh"}:
        raise PartError(f"{where}.topology: switch or mesh, not {raw['topology']!r}")
    return Peer(
        topology=raw["topology"],
        links=_whole(raw["links"], f"{where}.links"),
        link_bytes_per_second=_number(raw["link_bytes_per_second"], f"{where}.link_bytes_per_second"),
    )


def _tile(raw: Any, where: str) -> Tile:
    pair = _list(raw, where)
    if len(pair) != 2:  # noqa: PLR2004 - rows and columns
        raise PartError(f"{where}: a tile is [rows, columns]")
    return Tile(m=_whole(pair[0], where), n=_whole(pair[1], where))


def _tiles(raw: Any, where: str) -> tuple[Tile, ...]:
    return tuple(_tile(one, where) for one in _list(raw, where))


def _each(read: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    """A mapping of values that are read alike."""
    return lambda raw, where: {str(k): read(v, f"{where}.{k}") for k, v in _mapping(raw, where).items()}


def _known(raw: Mapping[str, Any], names: set[str], where: str) -> None:
    """Raises PartError unless exactly these keys are there."""
    strange, missing = sorted(raw.keys() - names), sorted(names - raw.keys())
    if strange or missing:
        what = [f"unknown: {', '.join(strange)}"] if strange else []
        what += [f"missing: {', '.join(missing)} (null where nobody knows)"] if missing else []
        raise PartError(f"{where}: {'; '.join(what)}")


def _mapping(raw: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(raw, dict):
        raise PartError(f"{where}: a mapping is wanted")
    return raw


def _list(raw: Any, where: str) -> list[Any]:
    if not isinstance(raw, list) or not raw:
        raise PartError(f"{where}: a list is wanted")
    return raw


def _present(value: Any, where: str) -> Any:
    if value is None:
        raise PartError(f"{where}: cannot be null, the model rests on it")
    return value


def _number(raw: Any, where: str, *, low: float | None = None) -> float:
    """A number above zero, or from `low` on."""
    if isinstance(raw, bool) or not isinstance(raw, int | float):
        raise PartError(f"{where}: {raw!r} is no number (write 1.0e+9, not 1e9)")
    if not (raw > 0 if low is None else raw >= low) or raw == float("inf"):
        raise PartError(f"{where}: {raw!r} is out of range")
    return float(raw)


def _maybe(raw: Any, where: str) -> float | None:
    return None if raw is None else _number(raw, where, low=0.0)


def _share(raw: Any, where: str) -> float:
    value = _number(raw, where)
    if value > 1.0:
        raise PartError(f"{where}: {value!r} is a share, at most 1")
    return value


def _whole(raw: Any, where: str) -> int:
    value = _number(raw, where)
    if value != int(value):
        raise PartError(f"{where}: {raw!r} is no whole number")
    return int(value)
