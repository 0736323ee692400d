# ruff: noqa: INP001 - a script, not a package
"""Generate fleetd/pb from protos/: `python protos/generate.py [OUT]` (needs the `dev` extra).

The directory of a .proto file is its proto package and its Python package, so the generated imports need no patching.
tests/tidy/test_pb_fresh.py fails when the committed code is not what this prints.
"""

import sys
from pathlib import Path

from grpc_tools import protoc

PROTOS = Path(__file__).resolve().parent


def generate(out: Path) -> None:
    """Write the generated modules and their stubs below `out`; raises SystemExit when a .proto file is wrong."""
    scripts = Path(sys.executable).parent  # the plugins of this environment, whatever PATH says
    sources = sorted(str(path.relative_to(PROTOS)) for path in PROTOS.rglob("*.proto"))
    rc = protoc.main(
        [
            "protoc",
            f"--proto_path={PROTOS}",
            f"--plugin=protoc-gen-mypy={scripts / 'protoc-gen-mypy'}",
            f"--plugin=protoc-gen-mypy_grpc={scripts / 'protoc-gen-mypy_grpc'}",
            f"--python_out={out}",
            f"--mypy_out=quiet:{out}",
            f"--grpc_python_out={out}",
            f"--mypy_grpc_out=quiet:{out}",
            *sources,
        ]
    )
    if rc:
        raise SystemExit(rc)
    for name in ("v1/common", "kubelet/v1/podresources"):
        for path in out.glob(f"fleetd/pb/{name}_pb2_grpc.py*"):
            path.unlink()  # no service in it; the plugin writes an empty module


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else PROTOS.parent)
