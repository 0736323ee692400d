"""Small pictures of a report, as SVG inside the page. Each says in words what it shows. Torch-free."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from burnin.telling.markup import Markup, tag

TILE = 128
"""Edge of a tile in elements; equal to `burnin.checksum.TILE`, which needs torch."""
PRODUCT = re.compile(r"(?P<m>\d+)x\d+x(?P<n>\d+)")
"""MxKxN in the name of a product: its result is M by N."""
CELLS_MAX = 128
"""Tiles along a side; a wider result is not drawn."""
DOTS_MAX = 1024
"""Wrong places in a picture; where there are more, none is drawn."""
UNITS_ACROSS = 22
LEFT_PX, WIDTH_PX = 92, 660


def figure(svg: Markup, caption: str) -> Markup:
    """A picture and what it shows."""
    return tag("figure", svg, tag("figcaption", caption))


def _svg(width: float, height: float, label: str, *children: str) -> Markup:
    box = f"0 0 {width:.0f} {height:.0f}"
    return tag("svg", *children, viewBox=box, width=width, height=height, role="img", aria_label=label)


def _word(x: float, y: float, text: str, **more: str) -> Markup:
    return tag("text", text, x=x, y=y, **more)


def bits(flips: Mapping[int, int], wrong: int) -> Markup:
    """How often each bit is flipped, of `wrong` elements; the highest bit stands left, as it is written.

    Args:
        flips: bit → elements in which it is flipped, not empty.
        wrong: elements that are wrong.
    """
    width = next(size for size in (8, 16, 32, 64) if max(flips) < size)
    step, high = max(6, 320 // width), 70
    top = max(wrong, *flips.values())
    drawn = []
    for bit in range(width):
        x = (width - 1 - bit) * step + 4
        drawn.append(tag("rect", x=x, y=10, width=step - 1, height=high, class_="box"))
        if flips.get(bit):
            tall = max(2.0, high * flips[bit] / top)
            drawn.append(tag("rect", x=x, y=10 + high - tall, width=step - 1, height=tall, class_="mark"))
        if bit % 8 == 0 or bit == width - 1:
            drawn.append(_word(x + step / 2, high + 24, str(bit), class_="soft", text_anchor="middle"))
    told = ", ".join(f"bit {bit} in {count:,}" for bit, count in sorted(flips.items()))
    return figure(
        _svg(width * step + 8, high + 30, f"Flipped bits: {told}", *drawn),
        f"Flipped bits of {width}, of {wrong:,} wrong elements: {told}",
    )


def result_map(case: str, tiles: Sequence[int], first: Sequence[int] | None, period: int | None) -> Markup | None:
    """The result of a product with its wrong tiles and, inside them, the places that their period allows.

    None: the case is no product, or its result is too wide for a picture.
    """
    shape = PRODUCT.search(case)
    if shape is None or not tiles:
        return None
    rows, columns = int(shape["m"]), int(shape["n"])
    down, across = -(-rows // TILE), -(-columns // TILE)
    if max(down, across) > CELLS_MAX or max(tiles) >= down * across:
        return None
    scale = min(240 / max(rows, columns), 2.0)
    drawn = [tag("rect", x=1, y=1, width=columns * scale, height=rows * scale, class_="box")]
    for number in tiles:
        y, x = (TILE * at for at in divmod(number, across))
        size = (min(TILE, columns - x) * scale, min(TILE, rows - y) * scale)
        drawn.append(tag("rect", x=1 + x * scale, y=1 + y * scale, width=size[0], height=size[1], class_="zone"))
        drawn.append(_frame(1 + x * scale, 1 + y * scale, *size))
    dots = _lattice(rows, columns, set(tiles), first, period)
    if dots:
        path = "".join(f"M{1 + x * scale:.1f} {1 + y * scale:.1f}h0" for y, x in dots)
        drawn.append(tag("path", d=path, class_="dots"))
    told = f"Wrong: {len(tiles)} of the {down * across} tiles ({TILE} by {TILE}) of the {rows} by {columns} result"
    told += f", number {', '.join(map(str, tiles[:8]))}{' …' if len(tiles) > 8 else ''}"  # noqa: PLR2004 - enough to name
    if dots:
        told += f"; dots: every {period:,}th element from [{first[0]}, {first[1]}] on" if first else ""
    return figure(_svg(columns * scale + 2, rows * scale + 2, told, *drawn), told)


def _frame(x: float, y: float, width: float, height: float) -> Markup:
    return tag("rect", x=x, y=y, width=width, height=height, style="fill:none;stroke:var(--mark)")


def _lattice(
    rows: int, columns: int, tiles: set[int], first: Sequence[int] | None, period: int | None
) -> list[tuple[int, int]]:
    """(row, column) of elements `period` apart that are in the tiles; none where the period says nothing."""
    if first is None or period is None or period < 2:  # noqa: PLR2004 - neighbours have no period
        return []
    across = -(-columns // TILE)
    found = []
    for at in range(first[0] * columns + first[1], rows * columns, max(period, 1)):
        row, column = divmod(at, columns)
        if row // TILE * across + column // TILE in tiles:
            found.append((row, column))
        if len(found) > DOTS_MAX:
            return []
    return found


def unit_map(named: Mapping[str, int], count: int | None) -> Markup | None:
    """Multiprocessors that were wrong: the chip's, by number, or those of AMD by accelerator die.

    Args:
        named: name → rounds in which it was the first that differed.
        count: multiprocessors of the chip, if known.
    """
    numbers = {int(name[2:]): rounds for name, rounds in named.items() if re.fullmatch(r"sm\d+", name)}
    told = "Multiprocessors that differed first, and in how many rounds: " + ", ".join(
        f"{name} ({rounds})" for name, rounds in sorted(named.items())
    )
    if numbers and len(numbers) == len(named):
        return figure(_grid(numbers, max(count or 0, *(n + 1 for n in numbers)), told), told)
    dies: dict[str, list[str]] = {}
    for name in sorted(named):
        if re.fullmatch(r"xcd\d+(\.\w+)+", name):
            dies.setdefault(name.partition(".")[0], []).append(name.partition(".")[2])
    if not dies:
        return None
    drawn = []
    for at, (die, units) in enumerate(dies.items()):
        drawn.append(_word(2, 16 + 22 * at, die))
        for column, unit in enumerate(units[:6]):
            drawn.append(tag("rect", x=48 + 92 * column, y=3 + 22 * at, width=88, height=18, class_="zone"))
            drawn.append(_word(52 + 92 * column, 16 + 22 * at, unit))
    return figure(_svg(48 + 92 * 6, 22 * len(dies) + 4, told, *drawn), told)


def _grid(numbers: Mapping[int, int], count: int, label: str) -> Markup:
    step = 14
    drawn = []
    for number in range(count):
        row, column = divmod(number, UNITS_ACROSS)
        kind = "mark" if number in numbers else "box"
        drawn.append(tag("rect", x=2 + step * column, y=2 + step * row, width=step - 2, height=step - 2, class_=kind))
    lines = -(-count // UNITS_ACROSS)
    return _svg(step * min(count, UNITS_ACROSS) + 4, step * lines + 4, label, *drawn)


def band(rates: Sequence[Mapping[str, Any]], slow: frozenset[int]) -> Markup:
    """The rates of all GPUs in one case on one scale: the zone in which one is slow, the median, the expectation.

    Args:
        rates: entries of the report's `rates` of one case, not empty.
        slow: indexes of the GPUs that are called slow.
    """
    median, expected = rates[0]["median"], rates[0]["expected"]
    known = [one for one in (median, expected, *(rate["best"] for rate in rates)) if one is not None]
    per_unit = 292 / (1.06 * max(known))  # the scale begins at zero, so that a length is a rate
    drawn = [tag("rect", x=4, y=6, width=292, height=16, class_="box")]
    share = rates[0]["slow_below"]
    limits = [share * median] if median is not None else []
    limits += [share * (1 - rates[0]["expected_error"]) * expected] if expected is not None else []
    if limits:
        drawn.append(tag("rect", x=4, y=6, width=per_unit * max(limits), height=16, class_="zone"))
    for value, kind in ((median, "rule"), (expected, "goal")):
        if value is not None:
            x = 4 + per_unit * value
            drawn.append(tag("line", x1=x, x2=x, y1=2, y2=26, class_=kind))
    drawn += [
        tag("circle", cx=4 + per_unit * one["best"], cy=14, r=4, class_="mark" if one["index"] in slow else "good")
        for one in rates
    ]
    label = "; ".join(f"GPU {one['index']}: {one['best']:.3g}" for one in rates)
    return _svg(300, 28, f"Rates on a scale from zero: {label}", *drawn)


def timeline(
    indexes: Sequence[int], tests: Sequence[tuple[str, float]], wrong: Mapping[tuple[int, str], int]
) -> Markup:
    """The time of each test, one row a GPU, with those marked in which the GPU was wrong.

    Args:
        indexes: of the GPUs.
        tests: (id, seconds) of those that took time, not empty.
        wrong: (index, test) → wrong rounds.
    """
    whole = sum(seconds for _, seconds in tests)
    row_px, drawn = 16, []
    for line, index in enumerate(indexes):
        x, y = float(LEFT_PX), 4 + row_px * line
        drawn.append(_word(2, y + 11, f"GPU {index}"))
        for number, (test, seconds) in enumerate(tests):
            wide = WIDTH_PX * seconds / whole
            hit = wrong.get((index, test), 0)
            kind = "mark" if hit else ("base" if number % 2 else "blue")
            title = f"GPU {index}, {test}, {seconds:.1f} s" + (f", wrong in {hit} rounds" if hit else "")
            bar = tag("title", title)
            drawn.append(
                tag("rect", bar, x=x, y=y, width=max(wide - 0.5, 0.5), height=row_px - 3, class_=kind, opacity="0.85")
            )
            x += wide
    x, y = float(LEFT_PX), 4 + row_px * len(indexes)
    for test, seconds in tests:
        wide = WIDTH_PX * seconds / whole
        if wide > 6.2 * len(test):
            drawn.append(_word(x + 2, y + 12, test, class_="soft"))
        x += wide
    hits = {index: [test for test, _ in tests if wrong.get((index, test))] for index in indexes}
    marked = [f"GPU {index} in {_few(several)}" for index, several in hits.items() if several]
    told = f"Tests by their time, {whole:.0f} s in all; red: the GPU was wrong ({'; '.join(marked) or 'nowhere'})"
    return tag("div", figure(_svg(LEFT_PX + WIDTH_PX + 4, y + 20, told, *drawn), told), class_="whole")


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")  # noqa: PLR2004
