"""Config: named values that can be frozen, read as attributes or by key."""

from __future__ import annotations

import copy
import difflib
import json
from collections.abc import ItemsView, Iterator, KeysView, ValuesView
from typing import Any


class Config:
    """Named values, as attributes and as entries; `freeze` makes them constant.

    >>> settings = Config(learning_rate=0.1)
    >>> settings.seed = 123
    >>> settings["seed"], settings.learning_rate
    (123, 0.1)
    >>> settings.freeze()
    >>> settings.seed = 1
    Traceback (most recent call last):
    ValueError: The config is frozen: call `unfreeze()` before changing it.
    """

    _config: dict[str, Any]
    _frozen: bool

    def __init__(self, **kwargs: Any) -> None:
        object.__setattr__(self, "_config", kwargs)
        object.__setattr__(self, "_frozen", False)

    @property
    def frozen(self) -> bool:
        """Whether nothing can be changed."""
        return self._frozen

    def freeze(self) -> None:
        """Forbid changes from now on."""
        object.__setattr__(self, "_frozen", True)

    def unfreeze(self) -> None:
        """Allow changes again."""
        object.__setattr__(self, "_frozen", False)

    def _changeable(self) -> dict[str, Any]:
        if self._frozen:
            raise ValueError(
                "The config is frozen: call `unfreeze()` before changing it."
            )
        return self._config

    def as_dict(self) -> dict[str, Any]:
        """Return a copy of the values as a dictionary."""
        return copy.copy(self._config)

    def to_json(self) -> str:
        """Return the values as JSON text."""
        return json.dumps(self._config)

    def keys(self) -> KeysView[str]:
        """Return the names."""
        return self._config.keys()

    def values(self) -> ValuesView[Any]:
        """Return the values."""
        return self._config.values()

    def items(self) -> ItemsView[str, Any]:
        """Return names and values."""
        return self._config.items()

    def pop(self, *args: Any) -> Any:
        """Remove a value and return it."""
        return self._changeable().pop(*args)

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Set several values."""
        self._changeable().update(*args, **kwargs)

    def get(self, keyname: str, value: Any = None) -> Any:
        """Return a value, or another one if there is none of that name."""
        return self._config.get(keyname, value)

    def __setattr__(self, name: str, value: Any) -> None:
        if hasattr(type(self), name) or name in vars(self):
            object.__setattr__(self, name, value)
        else:
            self._changeable()[name] = value

    def __getattr__(self, name: str) -> Any:
        config = vars(self).get("_config", {})
        if name in config:
            return config[name]
        similar = difflib.get_close_matches(name, config, n=1, cutoff=0.7)
        meant = f" Did you mean '{similar[0]}'?" if similar else ""
        raise AttributeError(f"Unknown attribute: '{name}'.{meant}")

    def __setitem__(self, key: str, item: Any) -> None:
        self._changeable()[key] = item

    def __getitem__(self, key: str) -> Any:
        return self._config[key]

    def __delitem__(self, key: str) -> None:
        del self._changeable()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._config))

    def __len__(self) -> int:
        return len(self._config)

    def __contains__(self, item: Any) -> bool:
        return item in self._config

    def __repr__(self) -> str:
        return f"<Config {self._config}>"
