"""The `Certificates` port: the agent's own certificate, whose dates are read here and which a short process renews."""

import asyncio
import json
import sys
from pathlib import Path

from fleetd.model.ids import HostName
from fleetd.ports import Refused, UplinkError, Validity
from fleetd.uplink.config import TlsFiles, UplinkConfig
from fleetd.uplink.key_files import heal
from fleetd.uplink.validity import validity_in

_START_S = 30.0
"""How long the process may need beside the controller's answer: a busy host, a slow disk."""
_SAID_MAX_CHARS = 200


class OwnCertificate:
    """The files of `uplink: cert` and `key`."""

    def __init__(self, config: UplinkConfig, files: TlsFiles, *, host: HostName) -> None:
        """Watch them; a replacement that was cut off is completed. Raises UplinkError.

        Args:
            config: how the controller is reached; with `renew`, the files are the agent's to replace.
            files: of `config`.
            host: whom the certificate names.
        """
        self._config = config
        self._files = files
        self._host = host
        if config.renew:
            heal(Path(files.cert), Path(files.key))

    def validity(self) -> Validity:
        """Of the file as it is now. Raises UplinkError."""
        return validity_in(Path(self._files.cert))

    async def renew(self) -> None:
        """Replace it by a new one. Raises Refused: the controller says no; UplinkError."""
        addresses = list(self._config.addresses)
        order = {
            "addresses": addresses,
            "ca": self._files.ca,
            "cert": self._files.cert,
            "key": self._files.key,
            "host": self._host,
            "answer_s": self._config.answer_seconds,
        }
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "fleetd.uplink.renew"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            raise UplinkError(f"cannot start a process to renew the certificate: {error.strerror}") from error
        try:
            async with asyncio.timeout(self._config.answer_seconds * len(addresses) + _START_S):
                said, complaint = await process.communicate(json.dumps(order).encode())
        except TimeoutError as error:
            raise UplinkError("the process that renews the certificate did not end in time") from error
        finally:
            if process.returncode is None:  # also when the agent ends: a replacement that is cut off is completed later
                process.kill()
                await process.wait()
        self._judge(said, complaint)

    @staticmethod
    def _judge(said: bytes, complaint: bytes) -> None:
        try:
            answer = json.loads(said)
        except ValueError:
            last = complaint.decode("utf-8", "replace").strip().rpartition("\n")[2][:_SAID_MAX_CHARS]
            raise UplinkError(f"the process that renews the certificate failed: {last or 'it said nothing'}") from None
        if "refused" in answer:
            raise Refused(str(answer["refused"]))
        if "failed" in answer:
            raise UplinkError(str(answer["failed"]))
