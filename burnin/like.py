"""Making it happen again: what an earlier report says of a failure, as the aim of a directed run. Pure, torch-free.

A fault may show with some data only, in one shape, above a temperature, at full power. So a directed run repeats the
tests that failed, in the cases and on the seeds of the signatures, at about the temperature that the GPU had. Nothing
is set for that: a GPU is warmed by work, and cools by rest. Its power is what the same work makes it draw.
"""

import json
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from statistics import mean
from typing import Any

from burnin.spec import SCHEMA, SpecError
from burnin.verdict.evidence import Cast
from burnin.verdict.health import together

BYTES_MAX = 64 << 20
CASES_MAX, SEEDS_MAX = 64, 64
"""Of one test; more would make a turn longer without aiming better."""
NEAR_CELSIUS = 3.0
"""A GPU is as warm as it was when it is so near; a thermometer of whole degrees and a fan's swing are less."""
TRIES_MAX = 4
"""Stretches of work or rest before a directed slice; then it runs as warm as it is: the other cooling may not allow
more."""


class Toward(StrEnum):
    """What brings a GPU to the temperature of an aim."""

    WORK = "work"
    REST = "rest"
    HERE = "here"


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """What failed in one test."""

    test: str
    cases: tuple[str, ...]
    seeds: tuple[int, ...]
    gpus: tuple[str, ...]
    """Those that were wrong."""
    celsius: float | None
    """Mean temperature of the launches that were wrong; None: it was not read."""
    watts: float | None
    """Mean power of them."""


def aims(report: Mapping[str, Any], tests: Collection[str]) -> tuple[Aim, ...]:
    """What a report says failed, by test, in the order in which it is told.

    Args:
        report: the JSON of an earlier run.
        tests: that can be repeated; what the self-test's workload found counts for its own test.

    Raises:
        SpecError: It is no report, or it names nothing that failed.
    """
    if report.get("schema") != SCHEMA or not isinstance(report.get("signatures"), list):
        raise SpecError(f"it is no report of a burn-in ({SCHEMA})")
    found: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for signature in report["signatures"]:
        if signature["test"] in tests:
            found[signature["test"]].append(signature)
    if not found:
        raise SpecError("it has no signature of a test that can be repeated: there is nothing to be like")
    return tuple(
        Aim(
            test=test,
            cases=tuple(dict.fromkeys(str(one["case"]) for one in several))[:CASES_MAX],
            seeds=tuple(dict.fromkeys(int(one["seed"]) for one in several))[:SEEDS_MAX],
            gpus=tuple(dict.fromkeys(str(one["gpu"]) for one in several)),
            celsius=_mean(several, "temperature_celsius"),
            watts=_mean(several, "power_watts"),
        )
        for test, several in found.items()
    )


def _mean(signatures: Collection[Mapping[str, Any]], name: str) -> float | None:
    known = [float(one[name]["mean"]) for one in signatures if one.get(name) is not None]
    return mean(known) if known else None


def read(path: Path, tests: Collection[str]) -> tuple[Aim, ...]:
    """The aims of the report in a file. Raises SpecError, with the option's name."""
    try:
        with path.open("rb") as file:
            text = file.read(BYTES_MAX + 1)
        report = json.loads(text) if len(text) <= BYTES_MAX else None
        return aims(report if isinstance(report, dict) else {}, tests)
    except OSError as error:
        raise SpecError(f"--like {path}: cannot be read: {error.strerror}") from error
    except SpecError as error:
        raise SpecError(f"--like {path}: {error}; give the JSON of a run that failed") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise SpecError(f"--like {path}: it is no whole report of a burn-in; give the JSON of a run") from error


def toward(aim: Aim, celsius: Mapping[str, float | None], tries: int) -> Toward:
    """What to do before a directed slice.

    Args:
        aim: of the slice.
        celsius: GPU → its temperature now.
        tries: stretches of work or rest that came before.
    """
    felt = [now for gpu, now in celsius.items() if now is not None and gpu in aim.gpus]
    felt = felt or [now for now in celsius.values() if now is not None]  # its place may have another GPU now
    if aim.celsius is None or not felt or tries >= TRIES_MAX:
        return Toward.HERE
    if max(felt) < aim.celsius - NEAR_CELSIUS:
        return Toward.WORK
    return Toward.REST if max(felt) > aim.celsius + NEAR_CELSIUS else Toward.HERE


def near(aim: Aim, casts: Collection[Cast]) -> str:
    """How near a slice came to what failed, in words: temperature and power of the GPUs in question, then and now."""
    mine = [cast for cast in casts if cast.gpu in aim.gpus] or list(casts)
    felt = together([cast.felt for cast in mine if cast.felt is not None])
    parts = []
    for was, now, unit in (
        (aim.celsius, felt.temperature_celsius, "°C"),
        (aim.watts, felt.power_watts, "W"),
    ):
        if was is not None:
            parts.append(f"{now.mean:.0f} {unit} now, {was:.0f} {unit} then" if now else f"{was:.0f} {unit} then")
    return f"directed at {aim.test}: {'; '.join(parts) or 'neither temperature nor power is known of then'}"
