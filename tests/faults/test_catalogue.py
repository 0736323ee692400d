"""The catalogue against the vendors' tables: a difference that no entry explains fails."""

import csv
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetd.config import ConfigError
from fleetd.config.faults import load_catalogue
from fleetd.core.faults.catalogue import Catalogue
from fleetd.core.faults.lines import literal
from fleetd.core.policy import Action
from fleetd.model.finding import Severity

FACTS = Path(__file__).parent / "facts"

BUCKETS = {
    "RESTART_APP": Action.RESTART_APP,
    "IGNORE": Action.NONE,
    "RESET_GPU": Action.RESET_GPU,
    "RESTART_BM": Action.REBOOT,
    "RESTART_VM": Action.REBOOT,
    "CONTACT_SUPPORT": Action.MONITOR,
    "UPDATE_SWFW": Action.MONITOR,
    "none given": Action.MONITOR,
}
"""What a bucket of the vendor stands for; the buckets that are not here are workflows, which need an explanation."""


def table(name: str) -> list[dict[str, str]]:
    with (FACTS / name).open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("row", table("xid.csv"), ids=lambda row: row["xid"])
def test_every_xid_follows_the_vendor_or_says_why_not(catalogue: Catalogue, row: dict[str, str]) -> None:
    entry = catalogue.entry(f"nvidia.xid.{row['xid']}")
    assert entry.known
    assert entry.vendor == f"{row['nvidia_immediate_action']} / {row['nvidia_investigatory_action']}"
    if entry.action is not BUCKETS.get(row["nvidia_immediate_action"]):
        assert entry.differs, f"XID {row['xid']} is silent about its difference"


def test_no_xid_is_made_up(catalogue: Catalogue) -> None:
    known = {entry.code for entry in catalogue if entry.code.startswith("nvidia.xid.")}
    assert known == {f"nvidia.xid.{row['xid']}" for row in table("xid.csv")}


def test_an_unused_or_unknown_xid_never_quarantines_at_first_sight(catalogue: Catalogue) -> None:
    for code in ("nvidia.xid.1", "nvidia.xid.20", "nvidia.xid.138", "nvidia.xid.500"):
        entry = catalogue.entry(code)
        assert (entry.action, entry.severity) == (Action.MONITOR, Severity.WARNING)


def test_an_application_fault_never_blames_the_host(catalogue: Catalogue) -> None:
    for n in (13, 31, 43, 45, 68, 69, 94):
        assert catalogue.entry(f"nvidia.xid.{n}").action in (Action.NONE, Action.MONITOR, Action.RESTART_APP)


@pytest.mark.parametrize("row", table("sxid.csv"), ids=lambda row: row["sxid"])
def test_every_sxid_has_the_action_of_its_class(catalogue: Catalogue, row: dict[str, str]) -> None:
    entry = catalogue.entry(f"nvidia.sxid.{row['sxid']}")
    wanted = {"always_fatal": Action.RESET_GPU, "potentially_fatal": Action.MONITOR, "other": Action.NONE}
    assert entry.known
    assert entry.action is wanted[row["nvidia_class"]]


def test_every_row_of_the_nvlink5_decode_is_there(catalogue: Catalogue) -> None:
    have = {
        (unit.xid, unit.v1, unit.v2, status, state.split(" | ")[0])
        for unit in catalogue.link_units
        for status, state in unit.states.items()
    }
    for row in table("nvlink5.csv"):
        status = row["error_status"]
        key = "any" if not status or "/" in status or "Degraded" in row["subcode"] else status
        v1, v2 = row["intrinfo_mask_v1_driver_lt_575"], row["intrinfo_mask_v2_driver_ge_575"]
        assert (int(row["xid"]), v1, v2, key, row["immediate_action"]) in have
        if row["action2"]:
            v1, v2 = row["action2_mask_v1"], row["action2_mask_v2"]
            assert (int(row["xid"]), v1, v2, key, row["action2"]) in have


@pytest.mark.parametrize("row", [row for row in table("amd.csv") if row["kind"] == "afid"], ids=lambda row: row["id"])
def test_every_afid_is_as_severe_as_the_vendor_says(catalogue: Catalogue, row: dict[str, str]) -> None:
    entry = catalogue.entry(f"amd.afid.{row['id']}")
    wanted = {
        "corrected": Severity.INFO,
        "fatal": Severity.FATAL,
        "fail-to-init": Severity.FATAL,
        "uncorrected-nonfatal": Severity.ERROR,
        "record": Severity.WARNING,
    }
    assert entry.known
    assert entry.severity is wanted[row["source_severity"]]


def test_every_library_event_is_there(catalogue: Catalogue) -> None:
    for row in table("amd.csv"):
        if row["kind"] in ("amdsmi_event", "rdc_event", "rdc_health"):
            assert catalogue.entry(f"amd.{row['kind']}.{row['id']}").known


def test_entries_are_complete_and_every_quarantine_has_an_exit(catalogue: Catalogue) -> None:
    for entry in catalogue:
        assert entry.meaning
        assert entry.investigation
        assert entry.source
        assert entry.action is not Action.NOTIFY
        assert entry.clear


def test_references_between_entries_lead_somewhere(catalogue: Catalogue) -> None:
    codes = [entry.code for entry in catalogue]
    for entry in catalogue:
        for glob in (*entry.follows, *([entry.rewords] if entry.rewords else [])):
            pattern = re.compile(glob.replace(".", r"\.").replace("*", ".*"))
            assert any(pattern.fullmatch(code) or glob == code for code in codes), f"{entry.code} → {glob}"


@pytest.mark.parametrize(
    "text", ["nvidia.xid.79", "79", "xid 79", "XID79", "Xid: 79", "NVRM: xid 79", " xid079 "], ids=lambda text: text
)
def test_a_code_is_found_as_people_write_it(catalogue: Catalogue, text: str) -> None:
    entry = catalogue.find(text)
    assert entry is not None
    assert entry.code == "nvidia.xid.79"


def test_other_codes_are_found(catalogue: Catalogue) -> None:
    for text, code in (
        ("sxid 20034", "nvidia.sxid.20034"),
        ("20034", "nvidia.sxid.20034"),
        ("afid 5", "amd.afid.5"),
        ("gpu_reset_failed", "amd.reset.failed"),
        ("amd.ras.umc.ue", "amd.ras.umc.ue"),
    ):
        entry = catalogue.find(text)
        assert entry is not None
        assert entry.code == code
    assert catalogue.find("xid 500") is None
    assert catalogue.find("nonsense") is None


@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_the_literal_of_an_expression_stands_in_all_it_matches(catalogue: Catalogue, data: st.DataObject) -> None:
    expressions = [expression for entry in catalogue for expression in entry.match]
    expression = data.draw(st.sampled_from(expressions))
    text = data.draw(st.from_regex(re.compile(expression, re.IGNORECASE | re.ASCII)))
    assert literal(expression) in text.lower()


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("abc", "abc"),
        ("ab?cd", "cd"),
        ("a|bcd", ""),
        ("(?:x|y) word", " word"),
        (r"a\(bc\)\d+ de", "a(bc)"),
        (r"\[\w+\] ?page fault", "page fault"),
        ("x{2}yz", "yz"),
        ("[abc]de[^]x]f", "de"),
        (r"\bsram_ecc\b", "sram_ecc"),
    ],
)
def test_literals(expression: str, wanted: str) -> None:
    assert literal(expression) == wanted


# ── a site's own files ──────────────────────────────────────────────────────────────────────────────────────────────

HEADER = 'apiVersion: fleetd/v1\nkind: FaultCatalogue\nsource: our site\nversion: "1"\n'


def test_a_site_overrides_by_code_and_by_glob(tmp_path: Path) -> None:
    (tmp_path / "ours.yaml").write_text(
        HEADER + "overrides:\n"
        '  - {code: nvidia.xid.63, action: reset_gpu, reason: "we reset at once"}\n'
        '  - {code: "nvidia.sxid.*", severity: error, reason: "page us"}\n',
        encoding="utf-8",
    )
    ours = load_catalogue(tmp_path)
    assert ours.entry("nvidia.xid.63").action is Action.RESET_GPU
    assert "we reset at once" in ours.entry("nvidia.xid.63").meaning
    assert ours.entry("nvidia.sxid.12028").severity is Severity.ERROR
    assert ours.entry("nvidia.sxid.12028").action is Action.NONE
    assert ours.entry("nvidia.xid.64").action is Action.RESET_GPU


def test_a_site_adds_a_fault_with_a_text_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "ours.yaml"
    path.write_text(
        HEADER + "templates:\n  ours: {scope: host, severity: error, action: drain, fault_class: none, clear: manual,\n"
        '         investigation: "ask the rack team"}\n'
        "faults:\n  - {code: site.pdu.trip, like: ours, meaning: a breaker tripped, match: ['nvidia pdu trip']}\n",
        encoding="utf-8",
    )
    assert load_catalogue(path).entry("site.pdu.trip").alias == "PDU_TRIP"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("faults:\n  - {code: a.b, like: nothing, meaning: x}\n", "there is no template `nothing`"),
        ("overrides:\n  - {code: nvidia.xid.63, action: reset_gpu, reason: ' '}\n", "needs a reason"),
        ("overrides:\n  - {code: nvidia.xid.63, action: notify, reason: x}\n", "`notify` is no action"),
        ("faults:\n  - {code: Upper, like: x, meaning: x}\n", "must look like"),
        ("faults:\n  - {code: a.b, like: x, meaning: x, match: ['(']}\n", "is no regular expression"),
        ("faults:\n  - {code: a.b, like: x, meaning: x, clear: never}\n", "clear `never` is none of"),
        ("faults:\n  - {code: a.b, like: x, meaning: x, colour: red}\n", "unknown key"),
    ],
)
def test_a_mistake_of_a_site_is_one_line(tmp_path: Path, body: str, message: str) -> None:
    path = tmp_path / "ours.yaml"
    path.write_text(HEADER + body, encoding="utf-8")
    with pytest.raises(ConfigError, match=re.escape(message)):
        load_catalogue(path)


def test_an_empty_directory_is_no_catalogue(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no catalogue file"):
        load_catalogue(tmp_path)
