"""The page of metrics as text: Prometheus's text format 0.0.4 and OpenMetrics 1.0.0.

Not the writer of prometheus_client, for two reasons: a family that is the same object as on the page before is not
written again (the GPUs are read once a second, whoever asks how often), and dcgm-exporter's counters, whose names do
not end in `_total`, keep their names. Formats: https://prometheus.io/docs/instrumenting/exposition_formats/ and
https://prometheus.io/docs/specs/om/open_metrics_spec/.
"""

import math
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from prometheus_client.metrics_core import Metric

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


class Collector(Protocol):
    """Anything that makes metric families from a snapshot. Called on a server thread; must not block."""

    def collect(self) -> Iterable[Metric]:
        """All families, each name once over all collectors of an exporter.

        A family that has not changed since the call before may be the same object; it must not be changed in place.
        """


class Page:
    """All collectors' families as text. May be asked from several threads; one page is made at a time."""

    def __init__(self, collectors: Sequence[Collector]) -> None:
        self._collectors = tuple(collectors)
        self._lock = threading.Lock()
        # Of the last page only, so it is bounded by the page; the family is kept so that its id stays its own.
        self._written: dict[str, dict[int, tuple[Metric, str]]] = {TEXT: {}, OPENMETRICS: {}}

    def text(self, content_type: str = TEXT) -> str:
        """The page as `TEXT` or `OPENMETRICS`."""
        write = _openmetrics if content_type == OPENMETRICS else _text
        with self._lock:
            before, after = self._written[content_type], {}
            parts: list[str] = []
            for collector in self._collectors:
                for family in collector.collect():
                    known = before.get(id(family))
                    part = known[1] if known is not None and known[0] is family else write(family)
                    after[id(family)] = (family, part)
                    parts.append(part)
            self._written[content_type] = after
        if content_type == OPENMETRICS:
            parts.append("# EOF\n")
        return "".join(parts)


def negotiate(accept: str) -> str:
    """The content type that an `Accept` header likes best; `TEXT` unless OpenMetrics is liked better."""
    liked = {"application/openmetrics-text": 0.0, "text/plain": 0.0}
    for item in accept.split(","):
        kind, *parameters = (part.strip() for part in item.split(";"))
        if kind.lower() in liked:
            liked[kind.lower()] = max(liked[kind.lower()], _quality(parameters))
    return OPENMETRICS if liked["application/openmetrics-text"] > liked["text/plain"] else TEXT


def _quality(parameters: Sequence[str]) -> float:
    """RFC 9110: 1 unless said otherwise; what cannot be read is not liked."""
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0


def _text(family: Metric) -> str:
    kind, name = family.type, family.name
    if kind == "counter" and all(sample.name.endswith(("_total", "_created")) for sample in family.samples):
        name += "_total"
    elif kind == "info":
        kind, name = "gauge", f"{name}_info"
    elif kind == "unknown":
        kind = "untyped"
    lines = [f"# HELP {name} {_escape(family.documentation)}\n# TYPE {name} {kind}\n"]
    # The format has no creation times.
    lines += [_line(s.name, s.labels, s.value) for s in family.samples if not s.name.endswith("_created")]
    return "".join(lines)


def _openmetrics(family: Metric) -> str:
    kind = family.type
    if kind == "counter" and not all(sample.name.endswith(("_total", "_created")) for sample in family.samples):
        kind = "unknown"  # here a counter must be called so; without its type it may keep its name
    help_text = _escape(family.documentation).replace('"', r"\"")
    lines = [f"# HELP {family.name} {help_text}\n# TYPE {family.name} {kind}\n"]
    lines += [_line(sample.name, sample.labels, sample.value) for sample in family.samples]
    return "".join(lines)


def _line(name: str, labels: Mapping[str, str], value: float) -> str:
    if not labels:
        return f"{name} {_number(value)}\n"
    pairs = ",".join([f'{label}="{_quoted(text)}"' for label, text in labels.items()])
    return f"{name}{{{pairs}}} {_number(value)}\n"


def _number(value: float) -> str:
    if math.isfinite(value):
        return repr(float(value))
    return "NaN" if math.isnan(value) else ("+Inf" if value > 0 else "-Inf")


def _escape(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def _quoted(text: str) -> str:
    return text if text.isalnum() else _escape(text).replace('"', r"\"")
