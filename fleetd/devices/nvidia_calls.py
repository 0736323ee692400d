"""Calls to NVML for one GPU: what it does not support is asked once, and an error is told from a reading without value.

Every function is named, not referenced: an older binding or an older driver lacks some, and then has no such reading.
"""

import struct
from collections.abc import Iterable, Sequence
from typing import Any

from fleetd.devices.parts import Part
from fleetd.devices.reader import VendorError

_SILENT = (
    "NVML_ERROR_DRIVER_NOT_LOADED",
    "NVML_ERROR_GPU_IS_LOST",
    "NVML_ERROR_GPU_NOT_FOUND",
    "NVML_ERROR_RESET_REQUIRED",
    "NVML_ERROR_TIMEOUT",
    "NVML_ERROR_UNINITIALIZED",
)
"""Errors that speak for the whole GPU. Any other error means that the one reading could not be had (None)."""
_FOR_GOOD = ("NVML_ERROR_NOT_SUPPORTED", "NVML_ERROR_FUNCTION_NOT_FOUND", "NVML_ERROR_INVALID_ARGUMENT")
"""Errors that will be the same the next time: not asked again by this helper."""
_ABSENT = {32: 2**32 - 1, 64: 2**64 - 1}
"""NVML's "no value" is the largest unsigned integer of the width."""
_UNION_FIELDS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Member of `nvmlValue_t` by `nvmlValueType_t`."""
_WIDTHS = (64, 32, 64, 64, 64, 32, 16)
_SAMPLES = tuple(struct.Struct(text) for text in ("Qd", "QI4x", "QL", "QQ", "Qq", "Qi4x", "QH6x"))
"""`nvmlSample_t` by the type of its value: a time, and the union behind it. To ask the binding for the members of each
sample takes ten times as long as to unpack them all."""
_SELDOM = 100
"""What stays as it is while a driver does is asked once in so many times."""

Field = tuple[str, int]
"""Name of a field of `nvmlDeviceGetFieldValues` without `NVML_FI_DEV_`, and its scope (a link, or 0)."""


def codes(nvml: Any, names: Iterable[str]) -> frozenset[int]:
    """Numbers of the errors that this binding knows."""
    return frozenset(getattr(nvml, name) for name in names if hasattr(nvml, name))


class Calls:
    """Makes the calls for one GPU, and remembers what it does not have."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml = nvml
        self.part: Part | None = None
        self.handle = handle
        self._silent = codes(nvml, _SILENT)
        self._for_good = codes(nvml, _FOR_GOOD)
        self._not_there: set[tuple[Any, ...]] = set()  # bounded: calls times their few constant arguments
        self.last_error = ""
        self._ring_us: dict[int, int] = {}
        self._kept: dict[str, tuple[Any, int]] = {}

    def get(self, name: str, *args: Any, **keywords: Any) -> Any:
        """Call `nvmlDeviceGet…(handle, …)`: None when the reading cannot be had. VendorError: the GPU is silent."""
        if (name, *args) in self._not_there:
            return None
        function = getattr(self._nvml, name, None)
        if function is None:
            self._not_there.add((name, *args))
            return None
        try:
            return function(self.handle, *args, **keywords)
        except self._nvml.NVMLError as error:
            if error.value in self._silent:
                raise VendorError(str(error)) from error
            if error.value in self._for_good:
                self._not_there.add((name, *args))
            self.last_error = str(error)
            return None

    def seldom(self, name: str) -> Any:
        """As `get`, for what only another driver changes: mostly told from memory, unless there was none."""
        value, left = self._kept.get(name, (None, 0))
        if value is None or left <= 0:
            value, left = self.get(name), _SELDOM
        self._kept[name] = value, left - 1
        return value

    def ring(self, kind: int, scale: float = 1.0) -> list[tuple[float, float]]:
        """Samples since the last call: (seconds on the driver's clock, value), oldest first; [] where there are none.

        Raises VendorError when the GPU is silent.
        """
        told = self.get("nvmlDeviceGetSamples", kind, self._ring_us.get(kind, 0))
        # Nothing new: all of it the next time, lest a clock that was set back ends the samples for good.
        last_us = self._ring_us.pop(kind, 0)
        if told is None or not 0 <= told[0] < len(_UNION_FIELDS):
            return []
        absent = _ABSENT.get(_WIDTHS[told[0]])
        found = sorted(_SAMPLES[told[0]].iter_unpack(b"".join(told[1])))
        if found and found[-1][0] > last_us:
            self._ring_us[kind] = found[-1][0]
        return [(at_us * 1e-6, value * scale) for at_us, value in found if at_us > last_us and value != absent]

    def fields(self, wanted: Sequence[Field]) -> dict[Field, float]:
        """The fields that have a value, in one call. Raises VendorError when the GPU is silent."""
        ids: dict[Field, tuple[int, int]] = {}
        for field in wanted:
            number = getattr(self._nvml, f"NVML_FI_DEV_{field[0]}", None)
            if number is not None and field not in self._not_there:
                ids[field] = (number, field[1])
        if not ids:
            return {}
        values = self.get("nvmlDeviceGetFieldValues", tuple(ids.values())) or ()
        found: dict[Field, float] = {}
        for field, value in zip(ids, values, strict=False):
            if value.nvmlReturn in self._for_good:
                self._not_there.add(field)
            elif value.nvmlReturn in self._silent:
                raise VendorError(str(self._nvml.NVMLError(value.nvmlReturn)))
            elif value.nvmlReturn == 0 and 0 <= value.valueType < len(_UNION_FIELDS):
                number = getattr(value.value, _UNION_FIELDS[value.valueType])
                found[field] = float("nan") if number == _ABSENT.get(_WIDTHS[value.valueType]) else float(number)
        return found


def scaled(value: Any, scale: float = 1.0, *, bits: int = 32) -> float | None:
    """A number in fleetd's unit; None stays None, and NVML's "no value" is NaN: asked for, and no number."""
    if not isinstance(value, int | float):
        return None
    return float("nan") if value == _ABSENT.get(bits) else value * scale
