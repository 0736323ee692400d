"""Which GPU stands below which PCIe port, as far as the log itself says it.

Ports report for what is below them; without the way from the port to the GPU a lost link of a GPU looks like that
of any card. The kernel prints the way at boot (`PCI bridge to [bus 18-1a]`) and when it tries to recover a device.
"""

import re

from fleetd.core.faults.observation import device_key

MAX_KEPT = 4096
"""Ports and GPUs that are kept; a host has a few hundred."""
NEAR_LINES = 12
"""Lines after a port's error in which the kernel names the devices below it that it tells or cannot recover."""

_BDF = r"(?P<{}>[0-9a-f]{{4,8}}:[0-9a-f]{{2}}:[0-9a-f]{{2}}\.[0-9a-f])"
_BRIDGE = re.compile(
    r"\bpci(?:port)? "
    + _BDF.format("port")
    + r": pci bridge to \[bus (?P<first>[0-9a-f]{2})(?:-(?P<last>[0-9a-f]{2}))?\]",
    re.IGNORECASE,
)
_GPU = re.compile(
    r"\b(?:nvidia|amdgpu) "
    + _BDF.format("gpu")
    + r"|nvrm: gpu (?:at )?(?:pci:)?(?P<nvrm>[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2})",
    re.IGNORECASE,
)
_PORT = re.compile(r"\bpcieport " + _BDF.format("port"), re.IGNORECASE)
_RECOVERY = re.compile(r"aer|error_detected|can't recover", re.IGNORECASE)


class Bus:
    """Learns from the lines of one log; asks nothing of the host that reads it."""

    def __init__(self) -> None:
        self._ranges: dict[str, tuple[str, int, int]] = {}
        self._gpus: dict[str, str] = {}
        self._told: dict[str, str] = {}
        self._port: tuple[str, int] | None = None

    def learn(self, message: str, number: int) -> None:
        """Take what one line says.

        Args:
            message: The line without its prefix.
            number: 1-based line number.
        """
        if (bridge := _BRIDGE.search(message)) is not None and len(self._ranges) < MAX_KEPT:
            domain = bridge["port"].partition(":")[0].lower()
            first = int(bridge["first"], 16)
            last = int(bridge["last"], 16) if bridge["last"] else first
            self._ranges[device_key(bridge["port"]) or ""] = (domain, first, last)
        elif (port := _PORT.search(message)) is not None:
            self._port = (device_key(port["port"]) or "", number)
        elif (gpu := _GPU.search(message)) is not None and len(self._gpus) < MAX_KEPT:
            address = gpu["gpu"] or gpu["nvrm"]
            self._gpus[device_key(address) or ""] = address
            near = self._port is not None and number - self._port[1] <= NEAR_LINES
            if self._port is not None and near and _RECOVERY.search(message):
                self._told[self._port[0]] = address

    def gpu_below(self, device: str | None) -> str | None:
        """The GPU at or below a port; None when the log does not say that there is one."""
        key = device_key(device) or ""
        if key in self._gpus:
            return self._gpus[key]
        if key in self._told:
            return self._told[key]
        domain, first, last = self._ranges.get(key, ("", 1, 0))
        for address in self._gpus.values():
            gpu_domain, bus, _ = address.lower().split(":", 2)
            if int(gpu_domain, 16) == int(domain or "0", 16) and first <= int(bus, 16) <= last:
                return address
        return None
