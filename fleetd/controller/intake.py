"""Where agents come in: who may speak for which host, what was already said, where telemetry is kept."""

from collections.abc import AsyncIterator, Sequence

import structlog

from fleetd.controller.dispatcher import Dispatcher
from fleetd.controller.judge import Judge
from fleetd.core import inbox
from fleetd.model.event import AgentConnected, BurninRefused, FindingReceived
from fleetd.model.finding import Finding
from fleetd.model.host import Hello
from fleetd.model.ids import HostName, OrderId, SpoolId
from fleetd.model.journal import SpoolProgress
from fleetd.model.order import RunBurnin
from fleetd.model.telemetry import GpuSample
from fleetd.ports import Peer, Refused

_log = structlog.get_logger(__name__)
