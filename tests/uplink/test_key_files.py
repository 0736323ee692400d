"""A certificate and its key are replaced as one, wherever the power goes."""

import shutil
from pathlib import Path

import pytest

from fleetd.ports import UplinkError
from fleetd.uplink.key_files import _belong, heal, replace_pair, waiting_key


@pytest.fixture(name="pair")
def _pair(tmp_path: Path, certificates: tuple[Path, Path]) -> tuple[Path, Path]:
    """The host's pair in use, and a new key that waits for its certificate."""
    ours, foreign = certificates
    cert, key = tmp_path / "agent.crt", tmp_path / "agent.key"
    shutil.copy(ours / "agents/h01.crt", cert)
    shutil.copy(ours / "agents/h01.key", key)
    shutil.copy(foreign / "agents/h01.key", waiting_key(key))
    return cert, key


@pytest.fixture(name="chain")
def _chain(certificates: tuple[Path, Path]) -> str:
    """The certificate of the key that waits."""
    return (certificates[1] / "agents/h01.crt").read_text()


def test_the_pair_is_replaced(pair: tuple[Path, Path], chain: str) -> None:
    cert, key = pair
    replace_pair(cert, key, chain)
    assert _belong(cert, key)
    assert cert.read_text() == chain
    assert sorted(path.name for path in cert.parent.iterdir()) == ["agent.crt", "agent.key"]


def test_a_replacement_that_was_cut_off_between_the_two_is_completed(
    pair: tuple[Path, Path], chain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cert, key = pair
    rename = Path.replace

    def dies_at_the_key(path: Path, target: Path) -> Path:
        if path == waiting_key(key):
            raise KeyboardInterrupt
        return rename(path, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", dies_at_the_key)
        with pytest.raises(KeyboardInterrupt):
            replace_pair(cert, key, chain)
    assert not _belong(cert, key)
    heal(cert, key)
    assert _belong(cert, key)
    assert cert.read_text() == chain
    heal(cert, key)  # and nothing more happens
    assert _belong(cert, key)


def test_a_key_that_waits_for_its_certificate_is_left_waiting(pair: tuple[Path, Path]) -> None:
    cert, key = pair
    before = key.read_bytes()
    heal(cert, key)
    assert (key.read_bytes(), waiting_key(key).exists()) == (before, True)


def test_leftovers_of_one_that_was_cut_off_earlier_do_not_matter(pair: tuple[Path, Path], chain: str) -> None:
    cert, key = pair
    (cert.parent / "agent.crt.new").write_text("half of a certif")
    heal(cert, key)
    assert _belong(cert, key)
    replace_pair(cert, key, chain)
    assert _belong(cert, key)


def test_without_files_there_is_nothing_to_heal(tmp_path: Path) -> None:
    heal(tmp_path / "agent.crt", tmp_path / "agent.key")
    waiting_key(tmp_path / "agent.key").write_text("half of a k")
    heal(tmp_path / "agent.crt", tmp_path / "agent.key")
    assert waiting_key(tmp_path / "agent.key").exists()


def test_a_disk_that_refuses_is_told(pair: tuple[Path, Path], chain: str) -> None:
    cert, key = pair
    waiting_key(key).unlink()
    with pytest.raises(UplinkError, match=r"cannot replace .*agent\.crt and .*agent\.key: No such file"):
        replace_pair(cert, key, chain)
