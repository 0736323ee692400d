"""A whole fake host: what an agent must find in its environment and configuration to take it for a real one.

Three things are not this machine's: the vendor's library, the kernel log, and the Python of its burn-ins, which
computes on simulated GPUs. All of them lie outside the agent.
"""

import hashlib
import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from fleetd.sim.vendorlibs import amd, nvidia
from fleetd.sim.vendorlibs.libraries import NoFakeLibrary, private
from fleetd.sim.vendorlibs.scenario import Scenario

VENDORS = ("nvidia", "amd")
_PCI_DOMAIN = 0xFA
"""No PC has so many PCI domains: a fake GPU must not be taken for the device at the same address of this machine."""
_BURNIN = "burnin"
_PYTHON = f"""#!/bin/sh
# Stands for the Python of a fake host's burn-ins: its GPUs are simulated. What more it is told (how many GPUs, a
# planted fault) is in the scenario: `lib {_BURNIN} = OPTIONS`.
options=$(sed -n 's/^lib {_BURNIN} = //p' "$FAKE_BURNIN" | tail -n 1)
exec {{python}} "$@" --backend=sim $options
"""


class FakeHost:
    """A host of GPUs whose vendor's library is the fake one."""

    def __init__(self, folder: Path, *, host: str, vendor: str, gpus: int, libraries: Path) -> None:
        """Build the library if need be, and write the scenario of a host that is well.

        Args:
            folder: an existing folder, keeps the scenario.
            host: its name. The GPUs are called by it as the burn-in calls simulated ones, so that both mean the same.
            vendor: one of `VENDORS`.
            gpus: how many.
            libraries: the folder in which libraries are built and kept; see `libraries.cache`.

        Raises:
            NoFakeLibrary: there is no library for this vendor.
        """
        names = [f"SIM-{host}-{gpu:02d}" for gpu in range(gpus)]
        file = folder / "scenario"
        self.scenario: Scenario
        match vendor:
            case "nvidia":
                library = nvidia.build(libraries)
                part = {**nvidia.H200, **nvidia.LIVELY}
                self.scenario = nvidia.Scenario(file, gpus=gpus, part=part, names=names, domain=_PCI_DOMAIN)
                self._environ = nvidia.environ(file, library, {})
                self._sick = nvidia.SICK
            case "amd":
                library = amd.build(libraries)
                part = {**amd.MI300X, **amd.LIVELY}
                self.scenario = amd.Scenario(file, gpus=gpus, part=part, names=names, domain=_PCI_DOMAIN)
                self._environ = amd.environ(file, library, {})
                self._sick = amd.SICK
            case _:
                raise NoFakeLibrary(f"there is no fake library of {vendor}; there are: {', '.join(VENDORS)}")
        self._python = _python(libraries)
        self._gpus = gpus
        self.burn_in()

    @property
    def config(self) -> dict[str, object]:
        """What the agent's configuration says because of this host; all the rest is as on any host."""
        vendor = "nvidia" if nvidia.SCENARIO_VARIABLE in self._environ else "amd"
        return {
            "devices": {"backend": vendor},
            "burner": {"python": str(self._python)},
            "kernel_log": {"source": "off"},
            "jobs": {"slurm": "off", "kubelet": "off"},
        }

    def environ(self, base: Mapping[str, str] = os.environ) -> dict[str, str]:
        """The environment of this host's agent: `base`, and where the fakes are found."""
        found = {**base, **self._environ, "FAKE_BURNIN": str(self.scenario.file)}
        if "LD_LIBRARY_PATH" in self._environ and base.get("LD_LIBRARY_PATH"):
            found["LD_LIBRARY_PATH"] = f"{self._environ['LD_LIBRARY_PATH']}:{base['LD_LIBRARY_PATH']}"
        return found

    def burn_in(self, *, seed: int | None = None, inject: str | None = None, gpus: int | None = None) -> None:
        """Say how burn-ins go from now on: on which seed, with which planted fault (as `--inject` takes it).

        `gpus`: of how many GPUs, the first ones; None: of all.
        """
        options = {"gpus": self._gpus if gpus is None else gpus, "seed": seed, "inject": inject}
        words = [f"--{name}={value}" for name, value in options.items() if value is not None]
        self.scenario.put("lib", {_BURNIN: " ".join(words)})

    def go_bad(self, gpu: int) -> None:
        """Let the counters of a GPU tell of uncorrected memory errors from now on."""
        self.scenario.put(gpu, self._sick)


def _python(libraries: Path) -> Path:
    """The interpreter of the burn-ins; where the libraries are, since programs may be started from there."""
    text = _PYTHON.replace("{python}", shlex.quote(sys.executable))
    file = private(libraries) / f"python-{hashlib.blake2b(text.encode(), digest_size=8).hexdigest()}"
    fresh = file.with_name(f"{file.name}.{os.getpid()}")
    fresh.write_text(text, encoding="utf-8")
    fresh.chmod(0o700)
    fresh.replace(file)
    return file
