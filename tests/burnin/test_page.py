"""The page: whole, alone, read by everybody, and nothing that came from outside is markup in it."""

import re
from collections import Counter
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from burnin.spec import FaultClass
from burnin.telling.advice import NEXT, NEXT_OF_TEST, advice
from burnin.telling.markup import STYLE
from burnin.telling.page import to_html
from burnin.telling.pictures import bits, result_map, unit_map
from tests.burnin.report_hostile import GOLDEN, golden, hostile
from tests.burnin.report_runs import FAULTY, report_of

NAMES = sorted(path.stem for path in GOLDEN.glob("*.json"))
CONTRAST_MIN = 4.5
"""WCAG 2.2, 1.4.3, for text."""
pytestmark = pytest.mark.timeout(600)


def parsed(report: dict[str, Any]) -> ET.Element:
    """The page as a tree: it is written so that it is XML, too, and so every element is closed where it should be."""
    text = to_html(report)
    assert text.startswith('<!doctype html>\n<html lang="en">')
    text.encode("utf-8")
    return ET.fromstring(text.removeprefix("<!doctype html>\n"))  # noqa: S314 - our own


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return report_of(FAULTY, tmp_path_factory)


def words(element: ET.Element) -> str:
    return " ".join("".join(element.itertext()).split())


@pytest.mark.parametrize("name", NAMES)
def test_it_is_alone_and_accessible(name: str) -> None:
    page = parsed(golden(name))
    tags = Counter(one.tag for one in page.iter())
    assert not {"script", "link", "iframe", "object", "form", "img", "base"} & set(tags)
    assert [tags[name] for name in ("header", "main", "footer", "h1")] == [1, 1, 1, 1]
    assert len(page.findall("head/title")) == 1
    text = to_html(golden(name))
    assert not re.search(r"url\(|@import|https?:|\bon\w+=|src=", text)
    ids = [one.attrib["id"] for one in page.iter() if "id" in one.attrib]
    assert len(ids) == len(set(ids))
    for one in page.iter("section"):
        assert one.attrib["aria-labelledby"] in ids
    for one in page.iter("svg"):
        assert (one.attrib["role"], bool(one.attrib["aria-label"])) == ("img", True)
    for one in page.iter("table"):
        assert one.find("caption") is not None
        assert all(cell.attrib["scope"] == "col" for cell in one.findall("thead/tr/th"))
        width = len(one.findall("thead/tr/th"))
        for row in one.findall("tbody/tr"):
            assert (row[0].tag, row[0].attrib["scope"], len(row)) == ("th", "row", width)


def test_the_verdict_comes_first_then_what_to_do_then_how_to_see_it_again(faulty: dict[str, Any]) -> None:
    page = parsed(faulty)
    header = page.find("body/header")
    assert header is not None
    assert words(header[0]) == "Burn-in of h01: fail"
    assert "1, fail: a GPU or the host is bad" in words(header)
    assert "A demonstration, no verdict" in words(header)
    headings = [words(one) for one in page.iter("h2")]
    assert headings[:3] == ["What to do next", "See it again", "GPUs"]
    commands = [words(one) for one in page.iter("pre")]
    assert commands[0] == faulty["signatures"][0]["reproduce"]
    assert commands[-1] == faulty["reproduce"]


def test_a_signature_is_shown_in_pictures(faulty: dict[str, Any]) -> None:
    labels = [one.attrib["aria-label"] for one in parsed(faulty).iter("svg")]
    assert any(one.startswith("Flipped bits: bit") for one in labels)
    assert any(one.startswith("Wrong: ") and "tiles" in one for one in labels)
    assert any(one.startswith("Multiprocessors that differed first") for one in labels)
    assert any(one.startswith("Tests by their time") and "GPU 2 in" in one for one in labels)
    assert any(one.startswith("Rates on a scale") for one in labels)


def test_every_gpu_has_its_rates_watts_temperature_and_why(faulty: dict[str, Any]) -> None:
    table = next(one for one in parsed(faulty).iter("table") if words(one[0]).startswith("Watts and clock"))
    rows = [[words(cell) for cell in row] for row in table.findall("tbody/tr")]
    assert [row[:3] for row in rows] == [[str(gpu["index"]), gpu["gpu"], gpu["verdict"]] for gpu in faulty["gpus"]]
    assert [row[-1] for row in rows] == [gpu["why"] for gpu in faulty["gpus"]]
    for row in rows:
        assert re.search(r"[0-9.]+ of median", row[6])
        assert (row[7][-1], row[8][-2:], row[9][-3:]) == ("W", "°C", "MHz")
    wrong = [int(row[4].split()[0].replace(",", "")) for row in rows]
    assert [bool(count) for count in wrong] == [False, False, True, False]


@pytest.mark.parametrize("name", ["h200-x2-inject-f03", "h200-x2-quick", "h200-x2-pulse"])
def test_hostile_texts_stay_texts(name: str) -> None:
    report = golden(name)
    before = Counter(one.tag for one in parsed(report).iter())
    page = parsed(hostile(report))
    after = Counter(one.tag for one in page.iter())
    assert set(after) <= set(before), "no element that a report without them has not"
    assert not any(key.startswith("on") for one in page.iter() for key in one.attrib)
    assert "<script>alert(1)</script>" in words(page)
    assert not re.search("[\x00\x1b\u202e\ud800]", to_html(hostile(report)))


def test_hostile_texts_of_a_whole_report_stay_texts(faulty: dict[str, Any]) -> None:
    page = parsed(hostile(faulty))
    assert {one.tag for one in page.iter()} <= {one.tag for one in parsed(faulty).iter()}


def test_what_was_not_judged_is_said() -> None:
    report = golden("h200-x2-smoke") | {"verdict": "not_judged", "exit_code": 3, "why": "stopped by SIGTERM"}
    report["not_run"] = [{"id": "hbm", "why": "the run ended before it", "required": True}]
    report["gpus"][1] |= {"verdict": "not_judged", "why": "too little work"}
    page = parsed(report)
    part = next(one for one in page.iter("section") if one.attrib["aria-labelledby"] == "open")
    lines = [words(one) for one in part.iter("li")]
    assert lines == [
        "hbm: the run ended before it (required: without it there is no verdict)",
        "GPU 1: too little work",
    ]
    assert "do not take the host for good or bad" in words(page)


def test_a_slow_gpu_is_shown_beside_median_and_expectation() -> None:
    report = golden("h200-x2-quick")
    rate: dict[str, Any] = {
        "test": "rate",
        "case": "bf16 library 8192x8192x8192",
        "name": "gemm_bf16_flops_per_second",
        "gpus": 3,
        "median": 8e14,
        "expected": 8.2e14,
        "expected_error": 0.05,
        "slow_below": 0.9,
        "why": "bound by issue",
    }
    report["rates"] = [
        rate | {"gpu": gpu["gpu"], "index": gpu["index"], "best": 8e14 - 3e14 * gpu["index"]} for gpu in report["gpus"]
    ]
    why = "rate bf16: 5e+14 a second, 0.62 of the median of 3 GPUs; 900 MHz (others 1700), held back by power"
    report["culprits"] = [{"gpu": report["gpus"][1]["gpu"], "index": 1, "class": "slow", "why": why}]
    report["gpus"][1] |= {"verdict": "fail", "class": "slow", "why": why}
    page = parsed(report)
    assert "0.61 of expected" in words(page)
    assert "held back by power" in words(page)
    band = next(one for one in page.iter("svg") if one.attrib["aria-label"].startswith("Rates"))
    assert [one.attrib["class"] for one in band.iter("circle")] == ["good", "mark"]
    assert [one.attrib["class"] for one in band.iter("line")] == ["rule", "goal"]


@pytest.mark.parametrize("fault", [one for one in FaultClass if one is not FaultClass.NONE])
def test_every_class_says_what_to_do(fault: FaultClass) -> None:
    report = golden("h200-x2-smoke") | {"verdict": "fail", "exit_code": 1}
    if fault in NEXT:
        report["culprits"] = [{"gpu": "g", "index": 0, "class": fault.value, "why": "w"}]
    else:
        report["tests"][3] |= {"verdict": "fail", "class": fault.value}
    (line,) = advice(report)
    assert line.endswith((NEXT | NEXT_OF_TEST)[fault])


def test_a_pass_on_stand_ins_is_no_word_about_a_gpu() -> None:
    passed = golden("h200-x2-smoke")
    assert advice(passed) != advice(passed | {"backend": "cpu"})
    assert "no GPU was tested" in advice(passed | {"backend": "cpu"})[0]


def test_a_planted_fault_counts_against_no_gpu() -> None:
    report = golden("h200-x2-inject-f03")
    said, real = advice(report)
    assert "nothing of this counts against a GPU" in said
    assert real.startswith("were it real: GPU 1 ")
    missed = advice(report | {"verdict": "not_judged", "culprits": []})
    assert "do not take the host for good or bad" in missed[-1]


def luminance(colour: str) -> float:
    digits = colour.lstrip("#")
    digits = "".join(2 * one for one in digits) if len(digits) == 3 else digits
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    red, green, blue = (one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_text_can_be_read_in_light_and_in_dark() -> None:
    themes = [dict(re.findall(r"--(\w+):(#\w+)", part)) for part in STYLE.split("prefers-color-scheme:dark")]
    assert len(themes) == 2
    for theme in themes:
        for ground in ("bg", "box"):
            for ink in ("fg", "soft", "good", "bad", "open", "blue"):
                light, dark = sorted((luminance(theme[ink]), luminance(theme[ground])), reverse=True)
                assert (light + 0.05) / (dark + 0.05) >= CONTRAST_MIN, (ink, ground)


def test_pictures_draw_what_they_say() -> None:
    picture = ET.fromstring(bits({3: 7, 15: 2}, 7))  # noqa: S314 - our own
    marks = [one for one in picture.iter("rect") if one.attrib["class"] == "mark"]
    boxes = [one for one in picture.iter("rect") if one.attrib["class"] == "box"]
    assert (len(boxes), len(marks)) == (16, 2)
    assert float(marks[0].attrib["x"]) > float(marks[1].attrib["x"]), "the highest bit stands left"
    assert float(marks[0].attrib["height"]) > float(marks[1].attrib["height"])

    where = result_map("bf16 library 1023x777x2049", [3], [0, 410], 2049)
    assert where is not None
    tile = next(one for one in ET.fromstring(where).iter("rect") if one.attrib.get("class") == "zone")  # noqa: S314
    scale = float(tile.attrib["width"]) / 128
    assert float(tile.attrib["x"]) - 1 == pytest.approx(3 * 128 * scale, rel=0.01)
    dots = next(one for one in ET.fromstring(where).iter("path")).attrib["d"]  # noqa: S314
    assert dots.count("M") == 128, "one column of the tile"
    assert result_map("bf16 library 1023x777x2049", [136], None, None) is None, "no tile of this result"
    assert result_map("all-reduce bf16", [0], None, None) is None


@pytest.mark.parametrize(
    ("named", "count", "drawn"),
    [({"sm005": 2}, 132, 132), ({"sm140": 1}, None, 141), ({"xcd3.se1.sh0.cu05": 1, "xcd3.se1.sh0.cu06": 2}, 304, 2)],
)
def test_multiprocessors_are_drawn_by_number_or_die(named: dict[str, int], count: int | None, drawn: int) -> None:
    picture = unit_map(named, count)
    assert picture is not None
    assert len(list(ET.fromstring(picture).iter("rect"))) == drawn  # noqa: S314
    assert all(name in picture for name in named)
