"""Intervals for probabilities that were counted: what so many trials prove, and what they do not. Pure, torch-free."""

import math

Z95 = 1.959963984540054
"""Quantile of the normal distribution for a two-sided 95 % interval."""


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """The 95 % interval of a probability of which `successes` in `trials` were seen (Wilson's score interval, 1927).

    Unlike the textbook interval it stays inside [0, 1] and is honest at 0 and at all of few trials. Without trials it
    is (0, 1): nothing is known.

    Raises:
        ValueError: The counts contradict each other.
    """
    if not 0 <= successes <= trials:
        raise ValueError(f"{successes} successes in {trials} trials")
    if not trials:
        return 0.0, 1.0
    share, square = successes / trials, Z95 * Z95
    middle = share + square / (2 * trials)
    reach = Z95 * math.sqrt(share * (1 - share) / trials + square / (4 * trials * trials))
    scale = 1 + square / trials
    return max(0.0, (middle - reach) / scale), min(1.0, (middle + reach) / scale)


def never_seen_bound(trials: int) -> float:
    """Upper 95 % bound of the rate of something that was never seen in `trials`: 1 - 0.05^(1/n), about 3/n.

    1 without trials: that nothing false was seen in no runs says nothing.
    """
    return 1.0 - 0.05 ** (1 / trials) if trials else 1.0


def rate_bound(events: int, trials: int) -> float:
    """Upper 95 % bound of a rate of which `events` were seen: exact for none, else the upper end of Wilson's."""
    return wilson(events, trials)[1] if events else never_seen_bound(trials)


def fires(probability: float, visits: float) -> float:
    """Probability that something that happens with `probability` at each of `visits` independent visits happens once.

    Args:
        probability: in [0, 1].
        visits: not negative.
    """
    return 1.0 if probability >= 1 and visits else -math.expm1(visits * math.log1p(-min(probability, 1 - 2**-53)))
