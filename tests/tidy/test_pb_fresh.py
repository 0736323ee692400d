"""The committed protobuf code is what the .proto files say, and nothing was edited by hand."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_generated_code_is_fresh(tmp_path: Path) -> None:
    subprocess.run([sys.executable, ROOT / "protos" / "generate.py", tmp_path], check=True)
    fresh = {path.name: path.read_text() for path in (tmp_path / "fleetd" / "pb" / "v1").iterdir()}
    committed = {path.name: path.read_text() for path in (ROOT / "fleetd" / "pb" / "v1").glob("*_pb2*.py*")}
    assert committed == fresh, "run `python protos/generate.py`"
