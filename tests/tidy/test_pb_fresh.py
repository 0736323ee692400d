"""The committed protobuf code is what the .proto files say, and nothing was edited by hand."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_generated_code_is_fresh(tmp_path: Path) -> None:
    subprocess.run([sys.executable, ROOT / "protos" / "generate.py", tmp_path], check=True)

    def generated(root: Path) -> dict[str, str]:
        folder = root / "fleetd" / "pb"
        sources = [path for path in folder.rglob("*_pb2*") if path.suffix in {".py", ".pyi"}]
        return {str(path.relative_to(folder)): path.read_text() for path in sources}

    fresh, committed = generated(tmp_path), generated(ROOT)
    assert fresh
    assert committed == fresh, "run `python protos/generate.py`"
