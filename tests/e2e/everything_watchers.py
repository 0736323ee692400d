"""What watches the site: Debian's Prometheus and Alertmanager on the files of deploy/; addresses and waits are changed.

The controllers' doors are as these files have them: TLS, bearer tokens, service discovery, the hook.
"""

import copy
import json
import queue
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen

import yaml

from tests.deploy.promql import PROMETHEUS, RULE_FILES
from tests.e2e.everything_site import CONTROLLERS, HOSTS, Site
from tests.e2e.test_alertmanager import Receivers, alertmanager, receivers
from tests.e2e.test_prometheus import Stand, faster, running

PATIENCE = 1 / 60
"""Share of each `for` of the rules that is left: minutes become seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watchers:
    """They run."""

    prometheus: Stand
    people: Receivers
    """Pager and tickets."""
    alerts_api: str
    told: list[tuple[str, str]] = field(default_factory=list)
    """Receiver and alert, of what people have been told by now; `listen` goes on with it."""

    def listen(self) -> list[tuple[str, str]]:
        """What people have been told by now."""
        while True:
            try:
                receiver, body = self.people.heard.get_nowait()
            except queue.Empty:
                return self.told
            self.told.extend((receiver, alert["labels"]["alertname"]) for alert in body["alerts"])

    def alerts(self, name: str) -> list[dict[str, Any]]:
        """Alerts of a name as Alertmanager has them now."""
        with urlopen(self.alerts_api, timeout=60) as answer:  # noqa: S310 - loopback
            return [alert for alert in json.load(answer) if alert["labels"]["alertname"] == name]

    def fires(self, name: str, **labels: str) -> bool:
        """Whether an alert with these labels fires in Prometheus."""
        wanted = ",".join(f'{key}="{value}"' for key, value in {"alertname": name, **labels}.items())
        return bool(self.prometheus.results(f'ALERTS{{alertstate="firing",{wanted}}}'))


@contextmanager
def watching(site: Site) -> Iterator[Watchers]:
    """Start them, as soon as the controllers can be asked."""
    folder = site.folder / "watchers"
    (folder / "rules").mkdir(parents=True)
    shutil.copy(site.folder / "pki" / "ca.crt", folder / "fleetd-ca.crt")
    for file, name in (("viewer", "prometheus"), ("hook", "alertmanager")):
        (folder / f"fleetd-{file}.token").write_text(site.tokens[name][0])
    hooks = [f"https://127.0.0.1:{port}/hooks/alertmanager" for port in site.web_ports.values()]
    with receivers() as people, alertmanager(folder, people, hooks=hooks) as api:
        for file in RULE_FILES:
            faster(file, folder, patience=PATIENCE).rename(folder / "rules" / file.name)
        config = _prometheus(site, alertmanager_at=urlsplit(api).netloc)
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config, sort_keys=False))
        with running(folder) as port:
            stand = Stand(fleet=site, port=port, kernel_log=folder)
            yield Watchers(prometheus=stand, people=people, alerts_api=api)


def _prometheus(site: Site, *, alertmanager_at: str) -> dict[str, Any]:
    """The shipped file, for two controllers and ten agents of one machine."""
    body: dict[str, Any] = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())
    body["global"] = {"scrape_interval": "2s", "scrape_timeout": "2s", "evaluation_interval": "1s"}
    body["alerting"]["alertmanagers"] = [{"static_configs": [{"targets": [alertmanager_at]}]}]
    ports = [site.web_ports[name] for name in CONTROLLERS]
    agents, controllers = body["scrape_configs"]
    [discovery] = agents["http_sd_configs"]
    agents["http_sd_configs"] = []
    for port in ports:  # the one that stands by answers 503, and Prometheus keeps to the other's word
        url = discovery["url"].replace("controller:7480", f"127.0.0.1:{port}")
        agents["http_sd_configs"].append({**copy.deepcopy(discovery), "url": url, "refresh_interval": "2s"})
    # Hosts have names of their own, and one port. Here they are one machine, with a port each.
    agents["relabel_configs"] += [
        {
            "source_labels": ["__meta_fleetd_host"],
            "regex": host,
            "target_label": "__address__",
            "replacement": f"127.0.0.1:{site.metrics_ports[host]}",
        }
        for host in HOSTS
    ]
    controllers["static_configs"] = [{"targets": [f"127.0.0.1:{port}" for port in ports]}]
    return body
