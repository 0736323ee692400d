"""Who a verified certificate names: one URI `fleetd://ROLE/NAME` among its subject alternative names."""

import re
from collections.abc import Iterable

from fleetd.ports.desk import Peer, Refused

ROLES = ("agent", "operator", "viewer")
IDENTITY = re.compile(r"fleetd://(agent|operator|viewer)/([A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?)")


def peer_named(uris: Iterable[str]) -> Peer:
    """Return who the URIs of a verified certificate name; raises Refused unless they name exactly one peer."""
    ours = [uri for uri in uris if uri.startswith("fleetd:")]
    match = IDENTITY.fullmatch(ours[0]) if len(ours) == 1 else None
    if match is None:
        raise Refused(
            f"the certificate must name one peer as a URI fleetd://ROLE/NAME with ROLE {', '.join(ROLES)}; "
            f"it has {', '.join(ours) or 'none'}"
        )
    return Peer(role=match[1], name=match[2])
