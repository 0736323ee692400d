"""Tools' output as other versions and sites print it: odd labels, prefixes, columns, JSON shapes."""

import json

import pytest

from fleetd.core.faults.catalogue import Catalogue
from fleetd.core.faults.documents.read import read
from fleetd.core.faults.scan import judge

MONITOR = """\
GPU  POWER  SINGLE_ECC  DOUBLE_ECC  PCIE_REPLAY
  0  140 W           0           3            9
  1  139 W           0           0            9
"""
OVERVIEW = """\
| AMD-SMI 26.0.0  amdgpu version: 6.14.14 |
| 0000:05:00.0    AMD Instinct MI300X | 0 %      45 °C   2           140/750 W |
| 0000:15:00.0    AMD Instinct MI300X | 0 %      45 °C   0           140/750 W |
"""


def codes(catalogue: Catalogue, text: str) -> list[tuple[str, str | None, str]]:
    document = read(text)
    assert document is not None
    result = judge(catalogue, document.observations, format=document.format)
    return [(f.alias, f.device, f.action.value) for f in result.findings]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('DCGM_FI_DEV_XID_ERRORS{pci_bus_id="00000000:17:00.0",h="n{1}",err_msg="has \\"fallen\\" off, so"} 79\n',
         [("XID79", "00000000:17:00.0", "reboot")]),
        ('DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{ gpu="0", UUID="GPU-aa", } 1e+00 1700000000000\n',
         [("DRAM_UE", "GPU-aa", "reset_gpu")]),
        ('site_gpu_ecc_uncorrect_umc{gpu_id="2"} 4\n# EOF\n', [("RAS_UE", "GPU 2", "drain")]),
        ('amd_gpu_ecc_uncorrect_umc{gpu_id="2"} 0\n', []),
        (MONITOR, [("RAS_UE", "GPU 0", "drain")]),
        (OVERVIEW, [("RAS_UE", "0000:05:00.0", "drain")]),
        (json.dumps([{"gpu": 0, "bdf": "0000:05:00.0", "link_status": ["U", "D"]}]),
         [("XGMI_LINK_DOWN", "0000:05:00.0", "reset_gpu")]),
        (json.dumps([{"gpu": 0, "bdf": "0000:05:00.0", "link_status": ["U", "U"]}]), []),
        ("index, pci.bus_id, ecc.errors.uncorrected.volatile.total\n0, 00000000:17:00.0, 0\n1, 00000000:18:00.0, 3\n",
         [("DRAM_UE", "00000000:18:00.0", "reset_gpu")]),
        (json.dumps({"checkName": "SysLogsXIDError", "isFatal": True, "isHealthy": False, "errorCode": ["79"],
                     "entitiesImpacted": [{"entityType": "PCI", "entityValue": "0000:3b:00"}]}),
         [("XID79", "0000:3b:00", "reboot")]),
        (json.dumps({"checkName": "SysLogsSXIDError", "isFatal": True, "isHealthy": False, "errorCode": ["20009"],
                     "entitiesImpacted": [{"entityType": "PCI", "entityValue": "0000:07:00"}]}),
         [("SXID20009", "0000:07:00", "reset_gpu")]),
        (json.dumps([{"component": "xid", "states": [
            {"health": "Unhealthy", "reason": "XID 79 (GPU lost) detected on GPU-00000000-1111"}]}]),
         [("XID79", "GPU-00000000-1111", "reboot")]),
    ],
)  # fmt: skip
def test_variants(catalogue: Catalogue, text: str, expected: list[tuple[str, str | None, str]]) -> None:
    assert codes(catalogue, text) == expected
