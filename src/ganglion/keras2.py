"""Keras 2 spellings: accepted, with a warning for each, and what they switch on.

A script that uses them (`lr=`, `fit_generator`, `keras.layers.core`, ...) also expects
the few defaults that changed between Keras 2 and 3; see `active()`.
"""

from __future__ import annotations

import warnings
from typing import Any

from ganglion.compiler.ir.origin import user_line

_seen: set[str] = set()
_heard = False  # the script uses a spelling of Keras 2
_decided: bool | None = None  # by hand, which overrules what was heard
_in_tensorflow = False  # the script's Keras 2 is the one inside of TensorFlow
_learning_phase: bool | None = None  # of the calls on Keras tensors from now on
# The results of `active()` and `is_own_keras()`, for code that is run very often.
in_force = is_own = False


class Keras2Warning(UserWarning):
    """A Keras 2 spelling was accepted; the text gives today's."""


def note(old: str, new: str, *, changes_defaults: bool = True) -> None:
    """Warn once about an old spelling and remember that the script uses it."""
    global _heard
    was_active = active()
    _heard = _heard or changes_defaults
    _refresh()
    if old not in _seen:
        _seen.add(old)
        text = f"{old} is a Keras 2 spelling; today it is {new}. Accepted."
        if active() and not was_active:
            text += (
                " From here on, the few defaults that Keras 3 changed are those of "
                "Keras 2; `ganglion.keras2.set_active(False)` at the top keeps them."
            )
        where = user_line()
        warnings.warn_explicit(text, Keras2Warning, where.file or "?", where.line)


def active() -> bool:
    """Return whether the defaults of Keras 2 are in force."""
    return _heard if _decided is None else _decided


def set_active(on: bool | None, *, in_tensorflow: bool = False) -> None:
    """Decide whether the defaults of Keras 2 hold; None: by the script's spellings.

    `tf.keras` had some of today's defaults before Keras 3 did: ``in_tensorflow`` means
    its Keras 2. Forgets what was heard and warned about before.
    """
    global _decided, _heard, _in_tensorflow
    _decided, _heard, _in_tensorflow = on, False, in_tensorflow
    _seen.clear()
    _refresh()
    set_learning_phase(None)


def is_own_keras() -> bool:
    """Return whether a script is for Keras 2 itself, not for TensorFlow's."""
    return is_own


def _refresh() -> None:
    global in_force, is_own
    in_force = active()
    is_own = in_force and not _in_tensorflow


def learning_phase() -> bool | None:
    """Return whether layers train by `K.set_learning_phase`; None: it was not said."""
    return _learning_phase


def set_learning_phase(phase: bool | None) -> None:
    """Fix whether layers train that are called on Keras tensors from now on.

    In Keras 2, a layer kept the phase that it was called in: for `fit` and `predict`.
    """
    global _learning_phase
    _learning_phase = phase


class Changed(float):
    """A default of Keras 3 that also holds the one of Keras 2.

    It equals today's number; an argument that was really given is a plain float.
    """

    keras2: float
    changed_with_tensorflow: bool  # `tf.keras` had today's number from its start

    def __new__(
        cls, today: float, keras2: float, changed_with_tensorflow: bool = True
    ) -> Changed:
        """Make today's number, with the old one as an attribute."""
        number = super().__new__(cls, today)
        number.keras2 = keras2
        number.changed_with_tensorflow = changed_with_tensorflow
        return number


def chosen(value: Any) -> Any:
    """Return an argument, or Keras 2's default where that is in force."""
    if not isinstance(value, Changed):
        return value
    is_old = active() and not (_in_tensorflow and value.changed_with_tensorflow)
    return value.keras2 if is_old else float(value)
