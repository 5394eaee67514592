"""Models copied, saved and loaded by function, as `keras.models` has it."""

from __future__ import annotations

from typing import Any

from ganglion.models.model import Model
from ganglion.serialization import plain_config


def clone_model(
    model: Model,
    input_tensors: Any = None,
    clone_function: Any = None,
    call_function: Any = None,
    recursive: bool = False,
    **kwargs: Any,
) -> Model:
    """Return a model of the same shape with new weights, compiled if the model is."""
    if kwargs:
        raise TypeError(f"clone_model does not know {', '.join(sorted(kwargs))}.")
    unsupported = {
        "input_tensors": input_tensors,
        "clone_function": clone_function,
        "call_function": call_function,
        "recursive": recursive or None,  # it is about the functions
    }
    for name, value in unsupported.items():
        if value is not None:
            raise ValueError(
                f"clone_model: `{name}` is not supported. Change what "
                "`model.get_config()` gives, and make the model by `from_config`."
            )
    given = model.get_config()
    ends = {
        key: given[key] for key in ("input_layers", "output_layers") if key in given
    }
    clone: Model = type(model).from_config(plain_config(given) | ends)
    config = model.get_compile_config()
    if config is not None:
        clone.compile_from_config(config)
    return clone


def save_model(
    model: Model,
    filepath: Any,
    overwrite: bool = True,
    zipped: bool | None = None,
    **kwargs: Any,
) -> None:
    """Save a whole model, optimizer included, as a `.keras` file."""
    model.save(filepath, overwrite=overwrite, zipped=zipped, **kwargs)


def load_model(
    filepath: Any,
    custom_objects: Any = None,
    compile: bool = True,  # noqa: A002 (Keras' name)
    safe_mode: bool = True,
) -> Any:
    """Load a model that `save` wrote, here or in Keras; nothing in it is executed."""
    from ganglion import saving

    return saving.load_model(filepath, custom_objects, compile, safe_mode)


def model_from_json(json_string: str, custom_objects: Any = None) -> Any:
    """Rebuild a model from the text that `to_json` gave."""
    from ganglion import saving

    return saving.model_from_json(json_string, custom_objects)
