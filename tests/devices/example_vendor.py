"""A vendor of one's own: everything that `devices: {backend: "example_vendor:ExampleReader"}` needs.

The agent's Python must find the module (a package of yours beside fleetd, or PYTHONPATH of its unit). The reader lives
in the helper process: it may block, raise or die, and only its own GPU is missing then.
"""

import os
from pathlib import Path

from fleetd.devices.reader import Reading, VendorError


class ExampleReader:
    """Reads accelerators that a driver shows as folders of one file a value."""

    def open(self) -> None:
        """Find the driver."""
        self._root = Path(os.environ.get("EXAMPLE_ROOT", "/sys/class/example"))
        if not self._root.is_dir():
            raise VendorError(f"the example driver is not loaded ({self._root} is not there); load it", missing=True)

    def inventory(self) -> list[dict[str, str | int | None]]:
        """One entry a folder. `gpu` is what the part is called wherever it is plugged in: never an ordinal."""
        serials = sorted(path.name for path in self._root.iterdir())
        return [
            {"gpu": serial, "index": index, "vendor": "example", "sku": "Example One", "pci_address": None}
            for index, serial in enumerate(serials)
        ]

    def sample(self, gpu: str, *, slow: bool) -> Reading:
        """Names and units are the catalogue's (`fleetd.model.telemetry`); what the part does not have is left out."""
        try:
            milliwatts = int((self._root / gpu / "power_mw").read_text())
            up = [(link.name, float(link.read_text())) for link in sorted((self._root / gpu / "links").iterdir())]
        except OSError as error:
            raise VendorError(f"{gpu} does not answer: {error.strerror}") from error
        return {"power_watts": milliwatts * 1e-3, **({"fabric_link_up_ratio": up} if slow else {})}

    def close(self) -> None:
        """There is nothing open."""
