"""`python -m burnin.examples.dlrm`: a small recommendation model on four ranks under the training guard."""

from burnin.examples.command import main
from burnin.examples.models import DlrmTask

if __name__ == "__main__":
    main("dlrm", lambda seed: DlrmTask(seed=seed))
