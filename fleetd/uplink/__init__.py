"""All of gRPC: the agent's stream, the desk, TLS, and what the agent keeps on disk for them (spool, orders).

What belongs here: adapters behind `Uplink`, `Spool`, `Orders`, and servicers over `AgentDoor` and `DeskDoor`.
Imports model, ports and pb. Always true: nothing is acknowledged before the door stored it, and every queue is bounded.
"""

import os

# gRPC's C core writes its own lines to standard error, past every log setting; it reads this once, when imported.
# Each failure that matters reaches us as an exception and is reported in one line.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
