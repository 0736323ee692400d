"""Every Triton kernel without a GPU: compiled ahead of time for the targets, and interpreted against the CPU."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from burnin.kernels import attention, checksum, embedding, fill, functions, gemm, many, memory, units

TARGETS = {
    "gfx942": GPUTarget("hip", "gfx942", 64),
    "gfx950": GPUTarget("hip", "gfx950", 64),
    "sm_90": GPUTarget("cuda", 90, 32),
    "sm_100": GPUTarget("cuda", 100, 32),
}
SHARED_BYTES = {"gfx942": 65_536, "gfx950": 163_840, "sm_90": 232_448, "sm_100": 232_448}
"""Shared memory (LDS) that one program may have: what needs more compiles, and fails when it is loaded."""
POINTERS = {"partials": "*i64", "slot": "*i64", "words": "*i32", "raw": "*u8"}
FP8 = {"gfx942": {"fp8": "fp8e4b8", "fp8e5": "fp8e5b16"}}
TF32 = {"gfx942", "sm_90", "sm_100"}


@pytest.fixture(autouse=True)
def _cache_of_this_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    # Unset it warns; with and without fusion the kernels mean the same, they hold integers or sums of exact products.
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")


def compile_for(
    target: str,
    kernel: object,
    constants: dict[str, object],
    pointers: dict[str, str],
    *,
    warps: int = 4,
    stages: int = 0,
) -> str:
    """Compile to a binary of the target; scalars are 32-bit integers. Returns the assembly."""
    signature = {
        parameter.name: "constexpr" if parameter.name in constants else pointers.get(parameter.name, "i32")
        for parameter in kernel.params
    }
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
    compiled = triton.compile(
        source, target=TARGETS[target], options={"num_warps": warps} | ({"num_stages": stages} if stages else {})
    )
    amd = target.startswith("gfx")
    assert len(compiled.asm["hsaco" if amd else "cubin"]) > 1000
    assert compiled.metadata.shared <= SHARED_BYTES[target]
    return str(compiled.asm["amdgcn" if amd else "ptx"])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("dtype", "normal", "bits"),
    [("fp32", True, False), ("bf16", True, False), ("fp16", False, False), ("i8", False, False), ("i32", False, True)],
)
def test_fill_compiles(target: str, dtype: str, normal: bool, bits: bool) -> None:
    constants = {"NORMAL": normal, "BITS": bits, "BLOCK": fill.BLOCK}
    constants |= {"MANTISSA": 0, "BIAS": 0, "NEGATIVE_ZERO": True}
    compile_for(target, fill.fill, constants, {"out": f"*{dtype}"})


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", fill.FP8, ids=str)
def test_fill_compiles_for_every_fp8_format(target: str, dtype: torch.dtype) -> None:
    constants = {"NORMAL": True, "BITS": False, "BLOCK": fill.BLOCK}
    constants |= dict(zip(("MANTISSA", "BIAS", "NEGATIVE_ZERO"), fill.FP8[dtype], strict=True))
    compile_for(target, fill.fill, constants, {"out": "*u8"})


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("tail", [0, 1, 3])
def test_the_flat_checksum_compiles(target: str, tail: int) -> None:
    constants = {"TAIL": tail, "BLOCK": checksum.BLOCK}
    compile_for(target, checksum.flat_sums, constants, POINTERS | {"n_words": "i64"}, warps=8)
    compile_for(target, checksum.add_up, {"BLOCK": checksum.PROGRAMS_MAX}, POINTERS)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("even", "aligned"), [(True, True), (False, True), (False, False)])
def test_the_tiled_checksum_compiles(target: str, even: bool, aligned: bool) -> None:
    constants = {
        "EVEN": even,
        "ALIGNED": aligned,
        "TAIL": 0 if even else 3,
        "TILE": checksum.TILE,
        "TILE_WORDS": 64,
        "ROWS": checksum.ROWS,
    }
    compile_for(target, checksum.tile_sums, constants, POINTERS | {"out": "*i64"}, warps=checksum.TILE_WARPS)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp8", "fp8e5", "i8", "fp32", "tf32"])
def test_the_product_compiles(target: str, dtype: str) -> None:
    if dtype == "tf32" and target not in TF32:
        pytest.skip(f"{target} has no tf32 matrix unit")
    name = FP8.get(target, {}).get(dtype) or {"tf32": "fp32", "fp8": "fp8e4nv"}.get(dtype, dtype)
    size = {"i8": 1, "fp8": 1, "fp8e5": 1, "fp32": 4, "tf32": 4}.get(dtype, 2)
    constants = {
        "PRECISION": "tf32" if dtype == "tf32" else "ieee",
        "INTEGER": dtype == "i8",
        "BLOCK_M": gemm.BLOCK_M,
        "BLOCK_N": gemm.BLOCK_N,
        "BLOCK_K": gemm.BLOCK_K_BYTES // size,
        "GROUP": gemm.GROUP,
    }
    pointers = {"a": f"*{name}", "bt": f"*{name}", "out": "*i32" if dtype == "i8" else "*fp32"}
    compile_for(target, gemm.gemm, constants, pointers, warps=8, stages=3)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["bf16", "fp8", "i8", "ffma", "imad"])
def test_the_tile_on_every_unit_compiles_and_reads_where_it_is(target: str, dtype: str) -> None:
    plain = {"ffma": "fp32", "imad": "i32"}
    name = FP8.get(target, {}).get(dtype) or {"fp8": "fp8e4nv"}.get(dtype) or plain.get(dtype, dtype)
    amd = target.startswith("gfx")
    constants = {
        "PLAIN": dtype in plain,
        "INTEGER": name.startswith("i"),
        "PRECISION": "ieee",
        "UNIT": "amd" if amd else "nvidia",
        "EDGE": units.EDGE_PLAIN if dtype in plain else units.EDGE,
        "BLOCK_K": units.BLOCK_K_BYTES // (2 if dtype == "bf16" else 1),
    }
    out = "*i32" if name.startswith("i") else "*fp32"
    pointers = {"a": f"*{name}", "bt": f"*{name}", "out": out, "units": "*i32"}
    assembly = compile_for(target, units.same_tile, constants, pointers, warps=8)
    assert all(word in assembly for word in (("HW_REG_HW_ID", "HW_REG_XCC_ID") if amd else ("%smid",)))


@pytest.mark.parametrize("target", TARGETS)
def test_checksums_of_many_tensors_compile_and_load_16_bytes_at_a_time(target: str) -> None:
    pointers = dict.fromkeys(("tables", "sums", "sizes"), "*i64") | dict.fromkeys(("tensor_of", "piece_of"), "*i32")
    constants = {"PIECE": many.PIECE, "BLOCK": many.BLOCK}
    assembly = compile_for(target, many.piece_sums, constants, pointers, warps=many.WARPS)
    assert ("buffer_load_dwordx4" if target.startswith("gfx") else "ld.global.v4.b32") in assembly


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("op", ["exp2", "log2", "rcp", "rsqrt", "sin", "tanh", "erf"])
def test_special_functions_compile(target: str, op: str) -> None:
    pointers = {"out": "*fp32", "x": "*fp32"}
    compile_for(target, functions.special, {"OP": op, "BLOCK": functions.BLOCK}, pointers)


@pytest.mark.parametrize("target", TARGETS)
def test_integer_kernels_compile(target: str) -> None:
    pointers = {"sha": "*i32", "crc": "*i32", "mad": "*i64", "ones": "*i32", "words": "*i32"}
    compile_for(target, functions.integers, {"ROUNDS": 64, "BLOCK": functions.BLOCK}, pointers)
    for name in ("i32", "i64", "fp32"):
        constants = {"ROWS": functions.ROWS, "COLUMNS": functions.COLUMNS}
        compile_for(target, functions.atomic_sums, constants, {"out": f"*{name}", "matrix": f"*{name}"})


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
def test_embedding_kernels_compile(target: str, dtype: str) -> None:
    pointers = {"out": "*fp32", "table": f"*{dtype}", "gradient": f"*{dtype}"}
    indices = {"indices": "*i64", "starts": "*i64", "order": "*i64"}
    for kernel in (embedding.gather, embedding.scatter):
        compile_for(target, kernel, {"WIDTH": 128}, pointers | indices, warps=1)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kernel", ["forward", "backward_q", "backward_kv"])
def test_attention_compiles(target: str, kernel: str) -> None:
    pointers = dict.fromkeys(("q", "k", "v", "do"), "*bf16")
    pointers |= dict.fromkeys(("o", "lse", "dq", "dk", "dv"), "*fp32") | {"offsets": "*i32", "blocks": "*i32"}
    pointers |= {"scale": "fp32", "unit": "fp32"}
    constants = {"HEADS": 16, "DIM": 128, "BLOCK": attention.BLOCK}  # the wider one: it needs the most shared memory
    compile_for(target, getattr(attention, kernel), constants, pointers)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("pattern", [memory.ADDRESS, memory.CONSTANT, memory.SPACED, memory.RANDOM])
def test_memory_kernels_compile(target: str, pattern: int) -> None:
    pointers = {"words": "*i32", "found": "*i64", "count": "i64"}
    constants = {"PATTERN": pattern, "BLOCK": memory.BLOCK}
    compile_for(target, memory.write, constants, pointers, warps=8)
    flags = {"INVERT": pattern != memory.ADDRESS, "DOWN": pattern == memory.CONSTANT}
    compile_for(target, memory.check, constants | flags, pointers, warps=8)


def test_interpreted_kernels_equal_the_cpu() -> None:
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    script = Path(__file__).with_name("kernels_interpreted.py")
    done = subprocess.run(
        [sys.executable, script], env=environment, capture_output=True, text=True, check=False, timeout=250
    )
    assert done.returncode == 0, done.stderr[-3000:]


def test_burnin_imports_without_triton() -> None:
    code = (
        "import sys; sys.modules['triton'] = None\n"
        "import burnin.checksum, burnin.golden, burnin.workloads.gemm, burnin.workloads.step\n"
        "import torch; print(burnin.checksum.checksum(torch.ones(3), 1))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=250)
    assert done.returncode == 0, done.stderr[-3000:]
