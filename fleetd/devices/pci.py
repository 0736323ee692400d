"""Which GPUs the kernel has: what a vendor library that is running never learns of when it changes."""

from pathlib import Path

PCI_DEVICES = Path("/sys/bus/pci/devices")
_CLASSES = ("0x03", "0x12")
"""Display controllers and processing accelerators (PCI class codes); NVIDIA's and AMD's parts are one or the other."""
_VENDORS = {"nvidia": "0x10de", "amd": "0x1002"}
_KNOWN_MAX = 8192


class PciGpus:
    """The GPUs of one vendor on the PCI bus, with their drivers. Reads sysfs, which asks no GPU and no driver."""

    def __init__(self, vendor: str, devices: Path = PCI_DEVICES) -> None:
        """`vendor` is a backend; of one that is not known every accelerator counts."""
        self._vendor = _VENDORS.get(vendor)
        self._devices = devices
        self._ours: dict[str, bool] = {}

    def now(self) -> frozenset[str]:
        """`ADDRESS DRIVER` of each; empty where there is no /sys. About a millisecond on a host with a thousand."""
        try:
            names = sorted(entry.name for entry in self._devices.iterdir())[:_KNOWN_MAX]
        except OSError:
            return frozenset()
        # What an address was is forgotten with it: another part may be plugged in there.
        self._ours = {name: self._ours[name] if name in self._ours else self._is_ours(name) for name in names}
        return frozenset(f"{name} {self._driver(name)}" for name, ours in self._ours.items() if ours)

    def _is_ours(self, name: str) -> bool:
        if not self._word(name, "class").startswith(_CLASSES):
            return False
        return self._vendor is None or self._word(name, "vendor") == self._vendor

    def _word(self, name: str, what: str) -> str:
        try:
            return (self._devices / name / what).read_text(encoding="ascii", errors="replace").strip()
        except OSError:
            return ""  # it was taken out while we looked

    def _driver(self, name: str) -> str:
        try:
            return (self._devices / name / "driver").readlink().name
        except OSError:
            return "-"  # none is bound to it
