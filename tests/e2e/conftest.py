"""What the stories with real services share."""

from collections.abc import Iterator

import pytest

from tests.actuators import slurm_cluster


@pytest.fixture(name="cluster", scope="module")
def _cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[slurm_cluster.SlurmCluster]:
    """A real Slurm of three nodes. Each test leaves them as it found them: open, without jobs."""
    if slurm_cluster.REASON:
        pytest.skip(slurm_cluster.REASON)
    with slurm_cluster.SlurmCluster(tmp_path_factory.mktemp("slurm")) as cluster:
        yield cluster
