"""What hangs on a model's modules by name: buffers, and attributes of the program's own. By reference.

A step may put another tensor or number in a name's place (`self.seen = self.seen + 1`), and a list of tensors that was
made before knows nothing of it. What is inside a list, a dict or an object of the program's own stays its affair.
"""

from collections.abc import MutableMapping
from typing import Any

import torch

_MISSING = object()


class Hanging:
    """What hung there when this was made."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._held = [
            (names, dict(names))
            for module in model.modules()
            for names in ([vars(module)] if _of_the_program(module) else []) + [vars(module).get("_buffers")]
            if isinstance(names, MutableMapping)
        ]

    def put_back(self) -> None:
        """Let every name stand for what it stood for."""
        for names, held in self._held:
            for name in names.keys() - held.keys():
                del names[name]
            for name, value in held.items():
                if names.get(name, _MISSING) is not value:
                    names[name] = value


def _of_the_program(module: Any) -> bool:
    """Not a wrapper of torch's, whose attributes go with what it keeps elsewhere; what FSDP2 shards is."""
    return not type(module).__module__.startswith("torch.") or hasattr(module, "set_requires_gradient_sync")
