"""Who may read a private key: its owner, and the group of a file of root's."""

import os
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest

from fleetd.ports import UplinkError
from fleetd.uplink.config import TlsFiles
from fleetd.uplink.keyfile import check_files, read_key
from fleetd.uplink.tls import server_credentials

PEM = "-----BEGIN PRIVATE KEY-----\nMIIB\n-----END PRIVATE KEY-----\n"
NOBODY = 65534

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


def key(tmp_path: Path, mode: int, *, owner: int | None = None) -> Path:
    path = tmp_path / "some.key"
    path.write_text(PEM)
    path.chmod(mode)
    if owner is not None:
        os.chown(path, owner, -1)
    return path


@pytest.mark.parametrize("mode", [0o600, 0o400])
@pytest.mark.parametrize("owner", [pytest.param(0, marks=as_root), pytest.param(NOBODY, marks=as_root), None])
def test_what_its_owner_alone_may_use_is_read(mode: int, owner: int | None, tmp_path: Path) -> None:
    assert read_key(str(key(tmp_path, mode, owner=owner)), where="key") == PEM.encode()


@as_root
@pytest.mark.parametrize("mode", [0o640, 0o440])
def test_a_file_of_root_may_be_read_by_its_group(mode: int, tmp_path: Path) -> None:
    assert read_key(str(key(tmp_path, mode, owner=0)), where="key") == PEM.encode()


@pytest.mark.parametrize(
    ("mode", "owner", "who", "right"),
    [
        pytest.param(0o644, 0, "by others", "600", marks=as_root),
        pytest.param(0o660, 0, "by its group", "640", marks=as_root),
        pytest.param(0o642, 0, "by others", "600", marks=as_root),
        pytest.param(0o640, NOBODY, "by its group", "600", marks=as_root),
        pytest.param(0o604, NOBODY, "by others", "600", marks=as_root),
        (0o644, None, "by others", "600"),
    ],
)
def test_what_more_people_may_use_is_refused_with_the_command_that_mends_it(
    mode: int, owner: int | None, who: str, right: str, tmp_path: Path
) -> None:
    path = key(tmp_path, mode, owner=owner)
    with pytest.raises(UplinkError) as refused:
        read_key(str(path), where="listen")
    said = str(refused.value)
    assert said.startswith(f"listen: the private key {path} may be used {who} (mode {mode:04o}): chmod {right} {path}")
    assert "\n" not in said
    path.chmod(int(right, 8))
    assert read_key(str(path), where="listen") == PEM.encode()


def test_the_mode_that_counts_is_the_files_own(tmp_path: Path) -> None:
    """Kubernetes mounts secrets as symbolic links, whose own mode is 0777."""
    link = tmp_path / "link.key"
    link.symlink_to(key(tmp_path, 0o400))
    assert stat.S_IMODE(link.lstat().st_mode) == 0o777
    assert read_key(str(link), where="key") == PEM.encode()


def test_files_are_told_by_name_before_they_are_used(tmp_path: Path, certificates: tuple[Path, Path]) -> None:
    ours, foreign = certificates
    good = {"ca": str(ours / "ca.crt"), "cert": str(ours / "controller.crt"), "key": str(ours / "controller.key")}
    check_files(TlsFiles(**good), where="server")
    half = tmp_path / "half.key"  # as a copy that was cut off leaves it
    half.write_bytes((ours / "controller.key").read_bytes()[:100])
    half.chmod(0o600)
    for changed, says in (
        ({"ca": str(tmp_path / "no.crt")}, r"server: cannot read \S+/no\.crt: No such file"),
        ({"cert": str(tmp_path / "no.crt")}, r"server: cannot read \S+/no\.crt: No such file"),
        ({"key": str(foreign / "controller.key")}, "cannot be used together: key values mismatch"),
        ({"key": str(half)}, "cannot be used together: "),
        ({"key": str(ours / "ca.crt")}, "the private key .* may be used by others"),
    ):
        with pytest.raises(UplinkError, match=says):
            check_files(TlsFiles(**{**good, **changed}), where="server")


def test_a_controller_does_not_start_with_it_and_an_agent_says_so(play: Any, make: Any, tmp_path: Path) -> None:
    async def scenario(bench: Any) -> None:
        opened = shutil.copy(bench.tls("agents/h01")["key"], tmp_path / "opened.key")
        opened.chmod(0o644)
        with pytest.raises(UplinkError, match=r"listen: the private key .* chmod 600"):
            server_credentials(TlsFiles(**{**bench.tls("controller"), "key": str(opened)}), where="listen")
        async with bench.server() as server:
            uplink = bench.uplink(server.port, tls={**bench.tls("agents/h01"), "key": str(opened)})
            async with bench.agent(uplink, bench.spool()):
                await make.eventually(lambda: uplink.failures_total > 1)
                assert f"chmod 600 {opened}" in uplink.last_error
                assert not bench.door.hellos
                opened.chmod(0o600)  # which is all that it takes
                await make.eventually(lambda: bool(bench.door.hellos))

    play(scenario)
