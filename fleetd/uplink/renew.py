"""The short process that renews an agent's certificate: `python -m fleetd.uplink.renew`.

A process of its own, because the library that makes keys and requests would stay in the agent's memory for the month in
which it is not needed: see `fleetd.uplink.renewer`, which speaks to it. One JSON object in, one out.
"""

import json
import sys
from pathlib import Path
from typing import Any

from fleetd.model.ids import HostName
from fleetd.ports import PortError, Refused


def main(order: dict[str, Any]) -> dict[str, str]:
    """Carry out an order; the answer has `refused` or `failed` when it could not be."""
    try:
        from fleetd.uplink.enrol import Files, renew  # noqa: PLC0415 - its library is in an extra
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "cryptography":
            raise
        return {"failed": "renewing needs `cryptography`: pip install 'fleetd[enrol]'"}
    files = Files(ca=Path(order["ca"]), cert=Path(order["cert"]), key=Path(order["key"]))
    failed = "no controller is named"
    for address in order["addresses"]:
        try:
            renew(address, files, host=HostName(order["host"]), answer_s=order["answer_s"])
        except Refused as error:
            return {"refused": str(error)}
        except PortError as error:
            failed = str(error)
        else:
            return {}
    return {"failed": failed}


if __name__ == "__main__":
    json.dump(main(json.load(sys.stdin)), sys.stdout)
