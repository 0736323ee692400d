"""The house rules that no linter holds: sizes, banned words, what a fresh import may load."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted(p for top in ("fleetd", "burnin") for p in (ROOT / top).rglob("*.py") if "/pb/" not in p.as_posix())
MODULES = [".".join(p.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for p in SOURCES]
FILE_LINES_MAX = 330
FUNCTION_LINES_MAX = 60
TRACKED = subprocess.run(
    ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=False
).stdout.split("\n")


def _functions(tree: ast.AST) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_a_file_fits_in_one_sitting(path: Path) -> None:
    text = path.read_text()
    long_functions = [
        f"{f.name}: {f.end_lineno - f.lineno + 1} lines"
        for f in _functions(ast.parse(text))
        if f.end_lineno is not None and f.end_lineno - f.lineno + 1 > FUNCTION_LINES_MAX
    ]
    assert text.count("\n") <= FILE_LINES_MAX, f"{path}: split it"
    assert not long_functions, f"{path}: {long_functions}"


def test_every_package_says_what_belongs_in_it() -> None:
    for init in (p for p in SOURCES if p.name == "__init__.py"):
        docstring = ast.get_docstring(ast.parse(init.read_text()))
        assert docstring, init


def test_nothing_is_left_unfinished() -> None:
    leftovers = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b|NotImplementedError")
    found = [
        f"{p}:{n}" for p in SOURCES for n, line in enumerate(p.read_text().split("\n"), 1) if leftovers.search(line)
    ]
    assert not found, f"finish it or file an issue: {found}"


def test_the_tests_use_fakes_behind_ports() -> None:
    banned = re.compile(r"unittest\.mock|mocker\b|\bMagicMock\b|time\.sleep\(")
    tests = [p for p in (ROOT / "tests").rglob("*.py") if p != Path(__file__)]
    found = [f"{p}:{n}" for p in tests for n, line in enumerate(p.read_text().split("\n"), 1) if banned.search(line)]
    assert not found, f"use a fake behind the port; wait for events, not for time: {found}"


def test_top_level_is_what_the_architecture_says() -> None:
    allowed = {
        *("fleetd", "protos", "policies", "burnin", "tests", "deploy", ".ci"),
        *("pyproject.toml", "README.md", "ARCHITECTURE.md", "CHANGELOG.md", "SECURITY.md", "LICENSE", "Makefile"),
        *("constraints.txt", ".gitignore"),
    }
    assert {name.split("/")[0] for name in TRACKED if name} <= allowed


@pytest.mark.parametrize("module", ["fleetd.agent", "fleetd.compose", "fleetd.config", "fleetd.ports", "fleetd.core"])
def test_the_daemon_imports_no_torch_and_no_vendor_library(module: str) -> None:
    heavy = ("torch", "numpy", "triton", "pynvml", "amdsmi", "sqlalchemy", "cryptography")
    code = f"import sys, {module}; print([m for m in {heavy} if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_burnin_words_and_votes_need_no_torch() -> None:
    code = (
        "import sys, burnin.spec, burnin.vote, burnin.verdict.judge; "
        "print('torch' in sys.modules, 'numpy' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False False"


def test_version_is_quick_because_nouns_are_imported_on_use() -> None:
    code = (
        "import sys, fleetd.cli; print([m for m in ('grpc', 'yaml', 'rich.progress', 'structlog') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
