"""What a part draws at a clock and an activity, and the highest clock that a power allows: plain arithmetic.

`P(f, a) = leak + uncore(a) + a·s·C·V(f)²·f` with `V(f) = max(v_min, v_ref + slope·(f - f_ref))` and
`uncore(a) = low + (high - low)·a`. C is not given: it follows from `P(f_base, 1) = tbp`. The numbers of a part are data
(`policies/plants/`); those of a stand-in are assumed, not measured silicon.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Chip:
    """The power of one part. Watts, hertz, volts; an activity is a ratio 0 … 1 of the most that it can toggle."""

    tbp_watts: float
    """Board power that the part may draw for ever: its draw at `clock_base_hertz` and full activity."""
    clock_min_hertz: float
    clock_base_hertz: float
    clock_max_hertz: float
    leak_watts: float
    uncore_low_watts: float
    uncore_high_watts: float
    v_ref: float
    """Volts at `clock_ref_hertz`."""
    clock_ref_hertz: float
    slope_volts_per_hertz: float
    v_min: float

    def __post_init__(self) -> None:
        ordered = 0 < self.clock_min_hertz <= self.clock_base_hertz <= self.clock_max_hertz
        if not ordered or self.dynamic_watts <= 0 or self.v_min <= 0 or self.slope_volts_per_hertz < 0:
            raise ValueError(
                "a chip needs 0 < min <= base <= max clock, v_min > 0, slope >= 0, and tbp above leak and uncore"
            )

    @property
    def dynamic_watts(self) -> float:
        """What of the TBP is left for switching at the base clock."""
        return self.tbp_watts - self.leak_watts - self.uncore_high_watts

    def volts(self, clock_hertz: float) -> float:
        """The supply that a clock needs."""
        return max(self.v_min, self.v_ref + self.slope_volts_per_hertz * (clock_hertz - self.clock_ref_hertz))

    @property
    def capacitance(self) -> float:
        """C of the formula, in farads (watts per volt² and hertz)."""
        return self.dynamic_watts / (self.volts(self.clock_base_hertz) ** 2 * self.clock_base_hertz)

    def power_watts(self, clock_hertz: float, activity: float) -> float:
        """The draw at a clock and an activity (0 … 1)."""
        uncore = self.uncore_low_watts + (self.uncore_high_watts - self.uncore_low_watts) * activity
        switching = activity * self.capacitance * self.volts(clock_hertz) ** 2 * clock_hertz
        return self.leak_watts + uncore + switching

    def clock_hertz(self, power_watts: float, activity: float = 1.0) -> float:
        """The highest clock whose draw stays within a power, never below the lowest clock nor above the highest.

        Bisection on the monotone `power_watts`; 50 halvings of at most 2 GHz leave micro-hertz.
        """
        low, high = self.clock_min_hertz, self.clock_max_hertz
        if self.power_watts(high, activity) <= power_watts:
            return high
        if self.power_watts(low, activity) >= power_watts:
            return low
        for _ in range(50):
            middle = 0.5 * (low + high)
            if self.power_watts(middle, activity) <= power_watts:
                low = middle
            else:
                high = middle
        return low
