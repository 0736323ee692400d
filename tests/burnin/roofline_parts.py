"""A part with every constant known, for tests: an H200's published ones and plausible others. Not silicon."""

from dataclasses import replace

from burnin.parts import shelf
from burnin.parts.part import DtypeFit, Fitted, Older, Part, Power, Tile, Verified

DATA = {"normal": 1.0, "zeros": 0.0, "uniform": 0.85}
WATTS = {"bf16": 430.0, "fp16": 470.0, "tf32": 420.0, "fp8e4m3": 520.0, "int8": 500.0, "fp32": None}
DTYPES = {name: DtypeFit(share=0.75 if name == "int8" else 0.93, watts=watts) for name, watts in WATTS.items()}

OLDER = Older(
    dtypes=("int8",),
    tiles=(Tile(m=256, n=128), Tile(m=128, n=128)),
    share=0.63,
    tile_clocks=2500.0,
    store_clocks=4000.0,
    softness=2.0,
)


def complete(*, error_p90: float | None = 0.1) -> Part:
    """A scored part in which no term of the model is left out."""
    fitted = Fitted(
        verified=Verified(date="2026-11-30", driver="1", torch="2", points=60),
        error_p90=error_p90,
        clock_hertz=1.78e9,
        launch_seconds=1.1e-6,
        fill_clocks=2300.0,
        tile_clocks=900.0,
        l2_bytes_per_second=1.2e13,
        hbm_share=0.92,
        cache_share=0.5,
        copy_share=0.88,
        softness=3.0,
        unaligned={8: 0.7, 4: 0.45, 2: 0.22},
        older=OLDER,
        power=Power(base_watts=150.0, clock_watts=240.0, memory_watts=70.0, voltage_per_gigahertz=0.12),
        data=DATA,
        dtypes=DTYPES,
    )
    return replace(shelf.load("h200"), fitted=fitted)
