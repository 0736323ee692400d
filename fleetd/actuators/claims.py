"""Which host of the fleet is which node of the scheduler: one to one, or it is refused."""

from collections.abc import Collection, Mapping

from fleetd.actuators.config import NodeNames
from fleetd.model.ids import HostName
from fleetd.ports import NoNode


class Claims:
    """The hosts that there are, by node. Two that claim one node both get nothing done until a person decides."""

    def __init__(self, names: NodeNames) -> None:
        self._names = names
        self._hosts: dict[str, tuple[HostName, ...]] = {}  # bounded by the number of hosts

    @property
    def undisputed(self) -> Mapping[str, HostName]:
        """Node → host, where one host alone claims it."""
        return {node: hosts[0] for node, hosts in self._hosts.items() if len(hosts) == 1}

    def take(self, hosts: Collection[HostName]) -> None:
        """Take over the hosts of the fleet."""
        claims: dict[str, tuple[HostName, ...]] = {}
        for host in sorted(hosts):
            node = self._names.node_of(host)
            claims[node] = (*claims.get(node, ()), host)
        self._hosts = claims

    @staticmethod
    def nodes_of(names: NodeNames, hosts: Collection[HostName]) -> Mapping[str, HostName]:
        """Node → host, where one host alone of these claims it: what happened there is laid at no other's door."""
        claims = Claims(names)
        claims.take(hosts)
        return claims.undisputed

    def node_of(self, host: HostName) -> str:
        """The node of a host. Raises NoNode when another host claims it too."""
        node = self._names.node_of(host)
        others = [other for other in self._hosts.get(node, ()) if other != host]
        if others:
            raise NoNode(
                f"{host} and {', '.join(others[:3])} both claim the node {node}: retire the one that is not there any "
                "more, or name their nodes in `actuator: hosts: nodes`"
            )
        return node
