"""Texts into one compressed archive: the same texts at the same time give the same bytes."""

import gzip
import hashlib
import io
import json
import os
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

SCHEMA = "fleetd.bundle/1"
PART_BYTES_MAX = 4 << 20
"""Of one part its end is kept, which is what happened last; all parts together are below 64 MiB."""
SUFFIXES = (".tar.zst", ".tar.gz")


class PackError(Exception):
    """The bundle cannot be made; one line that says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One file of a bundle."""

    name: str
    """Its path in the archive."""
    text: str = ""
    missing: str = ""
    """Why it could not be had; then there is no text."""


def default_name(at_s: float, suffix: str) -> str:
    """Name of a bundle that was made at this time; it names no host, which a redacted bundle must not."""
    return f"fleetd-bundle-{datetime.fromtimestamp(at_s, UTC):%Y%m%dT%H%M%SZ}{suffix}"


def zstd_installed() -> bool:
    """Whether `.tar.zst` can be written."""
    try:
        import zstandard  # noqa: F401, PLC0415 - an extra
    except ImportError:
        return False
    return True


def pack(parts: Sequence[Part], out: Path, *, at_s: float, about: dict[str, Any]) -> dict[str, Any]:
    """Write an archive, readable by its owner only, and return its manifest, which is also in it.

    Args:
        parts: with unique names; those that are missing are named in the manifest.
        out: ends in one of `SUFFIXES`. An existing file is replaced only by a complete one.
        at_s: wall time that all files get.
        about: what else the manifest says.

    Raises:
        PackError: another suffix, no zstandard, or the disk refuses.
    """
    kept = {part.name: _end(part.text) for part in parts if not part.missing}
    manifest: dict[str, Any] = {
        "schema": SCHEMA,
        "at_seconds": round(at_s),
        **about,
        "files": {
            name: {"bytes": len(body), "sha256": hashlib.sha256(body).hexdigest(), "cut_bytes": cut}
            for name, (body, cut) in sorted(kept.items())
        },
        "missing": {part.name: part.missing for part in parts if part.missing},
    }
    files = {name: body for name, (body, _) in kept.items()}
    files["manifest.json"] = json.dumps(manifest, indent=2).encode() + b"\n"
    packed = _compressed(_tar(files, round(at_s)), out)
    fresh = out.with_name(f".{out.name}.part")
    try:
        fresh.unlink(missing_ok=True)
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(packed)
        fresh.replace(out)
    except OSError as error:
        fresh.unlink(missing_ok=True)
        raise PackError(f"cannot write {out}: {error.strerror}; give --out a path that can be written") from error
    return manifest


def _end(text: str) -> tuple[bytes, int]:
    """The end of a text, and how many bytes before it were cut."""
    body = text.encode(errors="replace")
    cut = max(0, len(body) - PART_BYTES_MAX)
    return body[cut:], cut


def _tar(files: dict[str, bytes], at_s: int) -> bytes:
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, body in sorted(files.items()):
            entry = tarfile.TarInfo(f"fleetd-bundle/{name}")
            entry.size, entry.mtime, entry.mode = len(body), at_s, 0o600
            tar.addfile(entry, io.BytesIO(body))
    return whole.getvalue()


def _compressed(tar: bytes, out: Path) -> bytes:
    if out.name.endswith(".tar.gz"):
        return gzip.compress(tar, mtime=0)
    if not out.name.endswith(".tar.zst"):
        raise PackError(f"{out.name} is no name of a bundle: it ends in {' or '.join(SUFFIXES)}")
    try:
        import zstandard  # noqa: PLC0415 - an extra
    except ImportError:
        raise PackError(".tar.zst needs `zstandard`: pip install 'fleetd[bundle]', or write a .tar.gz") from None
    return zstandard.ZstdCompressor(level=9, write_checksum=True).compress(tar)
