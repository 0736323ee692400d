# ruff: noqa: INP001 - a script, not a package
"""Make Grafana's dashboards from dashboards.yaml: `python deploy/grafana/generate.py [OUT]` (needs the `dev` extra).

The JSON is committed, so that nobody needs the SDK to use it; a test fails when it is not what this writes.
"""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml
from grafana_foundation_sdk.builders import (
    bargauge,
    common,
    dashboard,
    prometheus,
    stat,
    statetimeline,
    table,
    timeseries,
)
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as common_model
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

HERE = Path(__file__).resolve().parent
RUNBOOK = "https://fleetd.example/RUNBOOK.md"
"""Where your site serves deploy/RUNBOOK.md: the same address as in the rules of deploy/prometheus."""
SOURCE = model.DataSourceRef(type_val="prometheus", uid="${source}")
ALL = ".*"
"""What `All` means in a query: also hosts without the label. A list of every host would be too long for one."""
VARIABLES: Mapping[str, str] = {
    "pool": "label_values(fleetd_agent_silent_gpus, pool)",
    "host": 'label_values(fleetd_agent_silent_gpus{pool=~"$pool"}, host)',
    "gpu": 'label_values(fleetd_gpu_info{host=~"$host"}, gpu)',
}
OPENS = {
    "host": "/d/fleetd-host?var-host=${__value.raw}",
    "gpu": "/d/fleetd-gpu?var-host=${__data.fields.host}&var-gpu=${__value.raw}",
}
"""Columns of tables that lead on, so that nobody types a UUID. A table with GPUs has their hosts, too."""
COLOURS = {"good": "green", "bad": "red"}


def generate(out: Path) -> None:
    """Write every dashboard below `out` as UID.json. Raises KeyError: of what the file says of a panel."""
    out.mkdir(parents=True, exist_ok=True)
    for one in yaml.safe_load((HERE / "dashboards.yaml").read_text(encoding="utf-8")):
        text = JSONEncoder(sort_keys=True, indent=1).encode(_dashboard(one).build())
        (out / f"{one['uid']}.json").write_text(text + "\n", encoding="utf-8")


def _dashboard(one: Mapping[str, Any]) -> dashboard.Dashboard:
    made = (
        dashboard.Dashboard(one["title"])
        .uid(one["uid"])
        .description(one["about"])
        .tags(["fleetd"])
        .refresh("1m")
        .time("now-6h", "now")
        .timezone("browser")
        .readonly()
        .with_variable(dashboard.DatasourceVariable("source").label("Prometheus").type("prometheus"))
        .link(
            dashboard.DashboardLink("fleetd")
            .type(model.DashboardLinkType.DASHBOARDS)
            .tags(["fleetd"])
            .as_dropdown(as_dropdown=True)
            .include_vars(include_vars=True)
            .keep_time(keep_time=True)
        )
        .link(
            dashboard.DashboardLink("RUNBOOK")
            .type(model.DashboardLinkType.LINK)
            .url(RUNBOOK)
            .target_blank(target_blank=True)
        )
    )
    for name, how in one["variables"].items():
        made.with_variable(_variable(name, many=how == "many"))
    for number, panel in enumerate(one["panels"], start=1):
        made.with_panel(_panel(panel).id(number))
    return made


def _variable(name: str, *, many: bool) -> dashboard.QueryVariable:
    """A choice by label. `many`: several at once, and All to begin with; else one, the first to begin with."""
    made = (
        dashboard.QueryVariable(name)
        .label(name)
        .datasource(SOURCE)
        .query({"query": VARIABLES[name], "refId": name})
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(model.VariableSort.ALPHABETICAL_ASC)
        .multi(multi=many)
        .include_all(include_all=many)
    )
    if many:
        made.all_value(ALL).current(model.VariableOption(selected=True, text=["All"], value=["$__all"]))
    return made


def _panel(one: Mapping[str, Any]) -> Any:
    """A panel of one of the kinds; all have a title, what it says, a source, a size, a unit and queries."""
    kind = one["kind"]
    made = KINDS[kind]().title(one["title"]).description(one["says"]).datasource(SOURCE)
    width, height = one["size"]
    made.span(width).height(height)
    if "unit" in one:
        made.unit(one["unit"])
    alarm = one.get("alarm", {})
    if "above" in alarm:
        made.thresholds(_steps("good", alarm["above"], "bad"))
    elif "below" in alarm:
        made.thresholds(_steps("bad", alarm["below"], "good"))
    for place, (legend, expr) in enumerate(one["queries"].items()):
        made.with_target(_query(kind, legend, expr, ref=chr(ord("A") + place)))
    return made


def _query(kind: str, legend: str, expr: str, *, ref: str) -> prometheus.Dataquery:
    query = prometheus.Dataquery().expr(expr).ref_id(ref).datasource(SOURCE).legend_format(legend)
    if kind == "table":
        return query.instant().format(PromQueryFormat.TABLE)
    return query.instant() if kind in {"stat", "bars"} else query.range()


def _steps(below: str, value: float, above: str) -> dashboard.ThresholdsConfig:
    return (
        dashboard.ThresholdsConfig()
        .mode(model.ThresholdsMode.ABSOLUTE)
        .steps([model.Threshold(value=None, color=COLOURS[below]), model.Threshold(value=value, color=COLOURS[above])])
    )


def _lines() -> Any:
    legend = common.VizLegendOptions().display_mode(common_model.LegendDisplayMode.LIST).show_legend(show_legend=True)
    tip = common.VizTooltipOptions().mode(common_model.TooltipDisplayMode.MULTI)
    tip.sort(common_model.SortOrder.DESCENDING)
    # Gaps stay gaps: what was not read is not drawn.
    return timeseries.Panel().legend(legend.placement(common_model.LegendPlacement.BOTTOM)).tooltip(tip).line_width(1)


def _stack() -> Any:
    return _lines().stacking(common.StackingConfig().mode(common_model.StackingMode.NORMAL)).fill_opacity(40).min(0)


def _stat() -> Any:
    last = common.ReduceDataOptions().calcs(["lastNotNull"])
    return stat.Panel().reduce_options(last).color_mode(common_model.BigValueColorMode.BACKGROUND)


def _bars() -> Any:
    last = common.ReduceDataOptions().calcs(["lastNotNull"])
    made = bargauge.Panel().reduce_options(last).orientation(common_model.VizOrientation.HORIZONTAL).min(0)
    return made.display_mode(common_model.BarGaugeDisplayMode.GRADIENT)


def _states() -> Any:
    return statetimeline.Panel().show_value(common_model.VisibilityMode.NEVER).row_height(0.9)


def _table() -> Any:
    made = (
        table.Panel()
        .show_header(show_header=True)
        .transformations(
            [
                # Several queries are one table; nobody needs the time of an instant query.
                model.DataTransformerConfig(id_val="merge", options={}),
                model.DataTransformerConfig(
                    id_val="organize", options={"excludeByName": {"Time": True, "__name__": True}}
                ),
            ]
        )
    )
    for column, url in OPENS.items():
        link = {"title": f"open this {column}", "url": url, "targetBlank": False}
        made.override_by_name(column, [model.DynamicConfigValue(id_val="links", value=[link])])
    return made


KINDS: Mapping[str, Callable[[], Any]] = {
    "lines": _lines,
    "stack": _stack,
    "stat": _stat,
    "bars": _bars,
    "states": _states,
    "table": _table,
}

if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "dashboards")
