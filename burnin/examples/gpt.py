"""`python -m burnin.examples.gpt`: a small GPT on four ranks under the training guard."""

from burnin.examples.command import main
from burnin.examples.models import GptTask

if __name__ == "__main__":
    main("gpt", lambda seed: GptTask(seed=seed))
