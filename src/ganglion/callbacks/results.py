"""Results of epochs and batches by name, also by the names in old scripts."""

from __future__ import annotations

import re
from typing import Any

from ganglion import keras2


class Results(dict[str, Any]):
    """Results by name; ``acc`` and ``lr``, as Keras 2 called two of them, are found.

    >>> results = Results(val_accuracy=0.5)
    >>> results["val_acc"], "val_acc" in results, results.get("acc"), results
    (0.5, True, None, {'val_accuracy': 0.5})
    """

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or super().__contains__(_today(name))

    def __missing__(self, name: str) -> Any:
        today = _today(name)
        if not super().__contains__(today):
            raise KeyError(name)
        keras2.note(f"The result {name!r}", repr(today), changes_defaults=False)
        return self[today]

    def get(self, name: str, default: Any = None) -> Any:
        """Return a result, or the default where there is none of that name."""
        try:
            return self[name]
        except KeyError:
            return default


def _today(name: Any) -> Any:
    if name == "lr":
        return "learning_rate"
    return re.sub("(^|_)acc$", r"\1accuracy", name) if isinstance(name, str) else name
