"""The controller's metrics, derived from the ledger's image at every scrape: a gauge cannot drift from what is true."""

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fleetd.controller.area_metrics import area_metrics
from fleetd.controller.controller import Controller
from fleetd.controller.turn import Turn
from fleetd.core.invariants import EARLIER
from fleetd.model.host import Lifecycle


class TurnCollector(Collector):
    """Whether this controller judges, and if it does, everything about the fleet."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn

    def collect(self) -> Iterator[Metric]:
        """Yield every family once."""
        controller = self._turn.controller  # once: the scrape runs in a thread of its own
        text = "1 while this controller is the judge, 0 while it stands by."
        yield GaugeMetricFamily("fleetd_controller_leader", text, value=float(controller is not None))
        text = "Times that this controller became the judge."
        yield CounterMetricFamily("fleetd_controller_terms", text, value=self._turn.number)
        if controller is not None:
            yield from ControllerCollector(controller).collect()


class ControllerCollector(Collector):
    """What a fleet's dashboard needs of the controller.

    Label sets are bounded by the number of hosts that are not retired, of states, and of areas.
    """

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def collect(self) -> Iterator[Metric]:
        """Yield every family once."""
        yield from self._fleet()
        yield from self._work()
        yield from self._power()

    def _fleet(self) -> Iterator[Metric]:
        judge, connected = self._controller.judge, self._controller.dispatcher.connected
        hosts = list(judge.hosts.values())  # the scrape runs in a thread of its own: one copy, then no more looks
        states = Counter(host.state for host in hosts)
        by_state = GaugeMetricFamily("fleetd_hosts", "Hosts by lifecycle state.", labels=["state"])
        for state in Lifecycle:
            by_state.add_metric([state.value], states[state])
        yield by_state
        state_of = GaugeMetricFamily("fleetd_host_state", "1 for the state a host is in.", labels=["host", "state"])
        holds = GaugeMetricFamily("fleetd_host_holds", "Holds on a host.", labels=["host"])
        link = GaugeMetricFamily("fleetd_host_connected", "1 while the agent of a host is connected.", labels=["host"])
        hosts = [host for host in hosts if host.state is not Lifecycle.RETIRED]  # counted above, and gone otherwise
        for host in hosts:
            state_of.add_metric([host.name, host.state.value], 1)
            holds.add_metric([host.name], len(host.holds))
            link.add_metric([host.name], host.name in connected)
        yield from (state_of, holds, link)
        culprit = GaugeMetricFamily(
            "fleetd_gpu_held",
            "1 for a GPU that a hold on its host blames.",
            labels=["host", "gpu", "fault_class"],
        )
        blamed = {(h.name, hold.gpu, hold.fault_class.value) for h in hosts for hold in h.holds if hold.gpu is not None}
        for host_name, gpu, fault_class in sorted(blamed):
            culprit.add_metric([host_name, gpu, fault_class], 1)
        yield culprit
        yield from area_metrics(hosts, judge.fleet, judge.record)

    def _work(self) -> Iterator[Metric]:
        judge, dispatcher, intake = self._controller.judge, self._controller.dispatcher, self._controller.intake
        stopped = float(judge.record.stopped is not None)
        yield GaugeMetricFamily("fleetd_automation_stopped", "1 while the kill switch is on.", value=stopped)
        earlier = sum(any(hold.owner == EARLIER for hold in host.holds) for host in list(judge.hosts.values()))
        text = "Hosts that the scheduler keeps closed for an order of an earlier ledger."
        yield GaugeMetricFamily("fleetd_hosts_held_by_earlier", text, value=earlier)
        away = self._controller.watch.away
        yield GaugeMetricFamily("fleetd_hosts_away", "Hosts whose agent is not connected.", value=away)
        yield GaugeMetricFamily("fleetd_orders_open", "Orders not yet confirmed.", value=dispatcher.open_orders)
        back = dispatcher.hosts_held_back
        yield GaugeMetricFamily("fleetd_hosts_held_back", "Hosts whose open orders the kill switch holds.", value=back)
        trouble = dispatcher.orders_in_trouble
        yield GaugeMetricFamily("fleetd_orders_in_trouble", "Open fleet orders that failed last time.", value=trouble)
        scheduler = self._controller.scheduler_watch
        for name, help_text, value in (
            ("fleetd_decisions", "Events judged.", judge.decisions_total),
            ("fleetd_orders_withheld", "Orders that a budget or a rule's stage kept back.", judge.withheld_total),
            ("fleetd_orders_carried_out", "Orders that an actuator carried out.", dispatcher.carried_out_total),
            ("fleetd_orders_void", "Orders that were not meant any more when their turn came.", dispatcher.void_total),
            ("fleetd_order_failures", "Attempts at an order that failed.", dispatcher.failures_total),
            ("fleetd_pages_given_up", "Messages to a human that nobody took.", dispatcher.given_up_total),
            ("fleetd_scheduler_look_failures", "Looks at the scheduler that failed.", scheduler.failures_total),
            ("fleetd_scheduler_differences", "Hosts treated otherwise than ordered.", scheduler.differences_total),
            ("fleetd_jobs_ended", "Ends of jobs heard of from the scheduler.", scheduler.jobs_ended_total),
            ("fleetd_findings_received", "Findings received for the first time.", intake.findings_total),
            ("fleetd_findings_repeated", "Findings received again and counted once.", intake.duplicates_total),
            ("fleetd_findings_lost", "Findings that a host's full spool dropped.", intake.lost_total),
            ("fleetd_store_errors", "Batches of events that the ledger refused.", judge.store_errors_total),
        ):
            yield CounterMetricFamily(name, help_text, value=value)

    def _power(self) -> Iterator[Metric]:
        """Nothing without a power tree."""
        power = self._controller.power
        use = power.use()
        if use is None:
            return
        for name, help_text in (
            ("budget", "Power budget of an area."),
            ("reserved", "The most that the hosts of an area may be using."),
            ("demand", "What the hosts of an area want, their safe caps at least."),
            ("stranded", "Reserved for hosts that do not want it any more and have not confirmed to hold less."),
        ):
            family = GaugeMetricFamily(f"fleetd_power_area_{name}_watts", help_text, labels=["area"])
            for area in use.areas:
                family.add_metric([area.name], getattr(area, f"{name}_watts"))
            yield family
        uncapped = sum(bool(host.uncapped) for host in use.hosts)
        text = "Hosts that hold no cap, each reserved at its maximum."
        yield GaugeMetricFamily("fleetd_power_hosts_uncapped", text, value=uncapped)
        for name, help_text, value in (
            ("fleetd_power_grants", "Questions for power that were answered by a lease.", power.grants_total),
            ("fleetd_power_grants_short", "Leases for less than was asked for.", power.short_total),
            ("fleetd_power_refusals", "Questions for power that were answered by no lease.", power.refusals_total),
        ):
            yield CounterMetricFamily(name, help_text, value=value)
