"""Where standing faults survive a restart of the agent: within one boot, what was bad stays bad."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import structlog

from fleetd.core.gate import Faults, Standing, put
from fleetd.core.policy import Action
from fleetd.model.finding import Severity
from fleetd.model.ids import BootId, GpuId

_log = structlog.get_logger(__name__)
_BYTES_MAX = 4 << 20


class StandingFile:
    """One JSON file, replaced as a whole. Its trouble is logged and never ends the agent."""

    def __init__(self, path: Path, boot_id: BootId) -> None:
        self._path = path
        self._boot_id = boot_id
        self.saved = True
        """Whether the last save reached the disk."""

    def load(self, *, now_s: float) -> Faults:
        """What stood at the last save of this boot; nothing after a reboot, whose proof the controller asks for.

        Quiet times begin anew, and no episode counts as open: the detection has yet to see it.
        """
        try:
            if self._path.stat().st_size > _BYTES_MAX:
                raise ValueError("it is far too big")  # noqa: TRY301 - as unreadable as the others
            body = json.loads(self._path.read_text(encoding="utf-8"))
            if body["boot_id"] != self._boot_id:
                return {}
            faults: Faults = {}
            for entry in body["faults"]:
                faults = put(faults, replace(_standing(entry), last_s=now_s, lasts=False))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, KeyError, TypeError) as error:
            _log.error("standing_faults_lost", path=str(self._path), why=f"{type(error).__name__}: {error}")
            return {}
        return faults

    def save(self, faults: Faults) -> None:
        """Write what stands; `saved` says whether it worked. A disk that goes on refusing is logged once."""
        body = {"boot_id": self._boot_id, "faults": [asdict(one) for one in faults.values()]}
        fresh = self._path.with_suffix(".new")
        try:
            fresh.write_text(json.dumps(body), encoding="utf-8")
            fresh.replace(self._path)
        except OSError as error:
            if self.saved:
                _log.error("standing_faults_not_saved", path=str(self._path), why=error.strerror)
            self.saved = False
        else:
            self.saved = True


def _standing(entry: dict[str, object]) -> Standing:
    gpu = entry["gpu"]
    return Standing(
        code=str(entry["code"]),
        gpu=None if gpu is None else GpuId(str(gpu)),
        severity=Severity(int(str(entry["severity"]))),
        action=Action(str(entry["action"])),
        clear=str(entry["clear"]),
        why=str(entry["why"]),
        at_s=float(str(entry["at_s"])),
        last_s=0.0,
    )
