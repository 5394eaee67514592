"""Objects to plain data and back, in Keras' own format; no code is ever executed.

An object is found by its class name in tables that this package and the user fill:
nothing named in a file is imported.
"""

from __future__ import annotations

import base64
import functools
import inspect
import marshal
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ganglion.config import closest
from ganglion.system import budget

_builtin: dict[tuple[str, str], Any] = {}
_custom: dict[str, Any] = {}


class _Active(threading.local):
    """The settings in force while one thread writes or reads objects."""

    def __init__(self) -> None:
        self.scopes: list[dict[str, Any]] = []
        self.sharing: list[dict[Any, Any]] = []
        self.references: dict[str, Any] | None = None


_active = _Active()


def export(module: str, *aliases: str, name: str | None = None) -> Callable[[Any], Any]:
    """Register a class or function under the name of the Keras module that has it.

    Files are written with `name`, its own if there is none; aliases are other spellings
    to find it by.
    """

    def register(obj: Any) -> Any:
        for spelling in (name or obj.__name__, obj.__name__, *aliases):
            _builtin[module, spelling] = obj
        if inspect.isclass(obj):
            cls: Any = obj
            cls._keras_module, cls._keras_name = module, name or cls.__name__
        return obj

    return register


def names_in(module: str) -> list[str]:
    """Return the names registered for a Keras module."""
    return sorted(name for where, name in list(_builtin) if where == module)


def register_keras_serializable(
    package: str = "Custom", name: str | None = None
) -> Callable[[Any], Any]:
    """Let a class or function of yours be found again when a model is loaded.

    >>> @register_keras_serializable(package="demo")
    ... def double(x):
    ...     return x * 2
    >>> get_registered_object("demo>double") is double
    True
    """

    def register(obj: Any) -> Any:
        if inspect.isclass(obj) and not hasattr(obj, "get_config"):
            raise ValueError(
                "Cannot register a class that does not have a get_config() method: "
                f"{obj.__name__} cannot be saved without."
            )
        known = f"{package}>{name or obj.__name__}"
        _custom[known] = obj
        obj._registered_name = known
        return obj

    return register


def get_registered_object(
    name: str,
    custom_objects: dict[str, Any] | None = None,
    module_objects: dict[str, Any] | None = None,
) -> Any:
    """Return what the user registered under a name, None if nothing."""
    for table in (
        custom_objects or {},
        *reversed(_active.scopes),
        _custom,
        module_objects or {},
    ):
        if name in table:
            return table[name]
    return None


def get_registered_name(obj: Any) -> str:
    """Return the name a class or function is registered under."""
    # Its own name alone: a subclass of a registered class is another class.
    return vars(obj).get("_registered_name", obj.__name__)


class CustomObjectScope:
    """Makes names known to everything that is loaded in a `with` block."""

    def __init__(self, custom_objects: dict[str, Any] | None) -> None:
        self.custom_objects = dict(custom_objects or {})

    def __enter__(self) -> CustomObjectScope:
        """Make the names known."""
        _active.scopes.append(self.custom_objects)
        return self

    def __exit__(self, *error: object) -> None:
        """Unregister them again."""
        _active.scopes.pop()


custom_object_scope = CustomObjectScope


@contextmanager
def sharing() -> Iterator[None]:
    """Write an object that occurs several times so that it is a single object again."""
    _active.sharing.append({})
    try:
        yield
    finally:
        _active.sharing.pop()


@contextmanager
def by_reference() -> Iterator[dict[str, Any]]:
    """Write what is not ours as a name, and collect the object itself under that name.

    For pickles, which can name the user's classes and functions themselves.
    """
    before, _active.references = _active.references, {}
    try:
        yield _active.references
    finally:
        _active.references = before


def _name_of_reference(obj: Any) -> str:
    table = _active.references
    assert table is not None
    for name, known in table.items():
        if known is obj:
            return name
    name = f"{len(table)}>{getattr(obj, '__name__', type(obj).__name__)}"
    table[name] = obj
    return name


def get_custom_objects() -> dict[str, Any]:
    """Return the table of registered objects, to read or to add to."""
    return _custom


def look_up(module: str, name: str, kind: str) -> Any:
    """Return the class or function of a name; raise for an unknown name."""
    definition = get_registered_object(name)
    if definition is None:
        definition = _builtin.get((module, name))
    if definition is None:
        raise ValueError(f"Unknown {kind} {name!r}. {closest(name, names_in(module))}")
    return definition


def serialize_keras_object(obj: Any) -> Any:
    """Return plain data (what JSON can hold) that rebuilds an object."""
    if obj is None or isinstance(obj, (str, int, float, bool)):
        return obj
    if isinstance(obj, (np.integer, np.floating, np.bool_)):
        return obj.item()
    if isinstance(obj, np.dtype):
        return obj.name
    if isinstance(obj, bytes):
        return {"class_name": "__bytes__", "config": {"value": obj.decode()}}
    if isinstance(obj, np.ndarray):
        plain = {"value": obj.tolist(), "dtype": obj.dtype.name}
        return {"class_name": "__numpy__", "config": plain}
    if isinstance(obj, slice):
        parts = ("start", "stop", "step")
        plain = {part: serialize_keras_object(getattr(obj, part)) for part in parts}
        return {"class_name": "__slice__", "config": plain}
    if obj is Ellipsis:
        return {"class_name": "__ellipsis__", "config": {}}
    if isinstance(obj, (list, tuple)):
        items = [serialize_keras_object(part) for part in obj]
        return tuple(items) if isinstance(obj, tuple) else items
    if isinstance(obj, dict):
        return {key: serialize_keras_object(part) for key, part in obj.items()}
    if inspect.isfunction(obj) or inspect.isclass(obj):
        return _serialize_function(obj)
    if hasattr(obj, "get_config"):
        return _serialize_instance(obj)
    if _active.references is not None:
        return _function_entry(_name_of_reference(obj))
    raise TypeError(f"{obj!r} cannot be saved: it has no `get_config`.")


def _serialize_function(obj: Any) -> Any:
    for (module, name), known in list(_builtin.items()):
        if known is obj:
            if inspect.isclass(obj):
                return {"module": module, "class_name": "__class__", "config": name}
            # An activation is its name, other functions of Keras are entries.
            return name if module == "keras.activations" else _function_entry(name)
    if _active.references is not None:
        return _function_entry(_name_of_reference(obj))
    if obj.__name__ == "<lambda>":
        raise ValueError(
            "A lambda cannot be saved, because loading it would mean arbitrary code "
            "execution: define a named function and decorate it with "
            "@ganglion.saving.register_keras_serializable()."
        )
    return _function_entry(get_registered_name(obj))


def _lambda_entry(function: Any) -> dict[str, Any]:
    """Return a lambda as Keras writes it; nothing of ours ever executes that."""
    warnings.warn(
        "A lambda is saved as byte code, which Ganglion never executes: another "
        "process can build the model by its script and read the weights with "
        "`load_weights`, but not load it as a whole. Define a named function instead, "
        "and decorate it with @ganglion.saving.register_keras_serializable().",
        stacklevel=2,
    )
    code = base64.encodebytes(marshal.dumps(function.__code__)).decode("ascii")
    cells = function.__closure__ or ()
    closure = [_if_plain(cell.cell_contents) for cell in cells] or None
    defaults = [_if_plain(value) for value in function.__defaults__ or ()] or None
    config = {"code": code, "defaults": defaults, "closure": closure}  # in a `Lambda`
    config["value"] = [code, defaults, closure]  # and elsewhere
    earlier = _lambdas_written.setdefault(repr(config["value"]), function)
    if earlier is not function and None in (
        closure or ()
    ):  # which of the two is unclear
        _lambdas_written[repr(config["value"])] = None
    return {"class_name": "__lambda__", "config": config}


# The lambdas that this process has written, by what it wrote of them: to find one again
# executes nothing of a file.
_lambdas_written: dict[str, Any] = {}


def _lambda_written(config: Any) -> Any:
    """Return the lambda that a file holds, if this very process has it."""
    parts = [config.get(part) for part in ("code", "defaults", "closure")]
    return _lambdas_written.get(repr(parts))


def _if_plain(value: Any) -> Any:
    """Return a value that JSON can hold, None for any other."""
    return value if isinstance(value, (bool, int, float, str)) else None


def _function_entry(name: str) -> dict[str, Any]:
    return {
        "module": "builtins",
        "class_name": "function",
        "config": name,
        "registered_name": "function",
    }


def _serialize_instance(obj: Any) -> dict[str, Any]:
    cls = type(obj)
    is_ours = cls.__dict__.get("_keras_name") is not None
    name_of = get_registered_name if _active.references is None else _name_of_reference
    entry = {
        "module": cls._keras_module if is_ours else cls.__module__,
        "class_name": cls._keras_name if is_ours else cls.__name__,
        "config": plain_config(_with_lambdas(obj)),
        "registered_name": None if is_ours else name_of(cls),
    }
    for extra in ("build_config", "compile_config"):
        config = getattr(obj, f"get_{extra}", lambda: None)()
        if config is not None:
            entry[extra] = plain_config(config)
    if _active.sharing and hasattr(obj, "get_build_config"):
        # The object is kept alive, so that its id is not reused.
        table = _active.sharing[-1]
        first, _, number = table.setdefault(id(obj), (entry, obj, len(table)))
        if first is not entry:
            first["shared_object_id"] = entry["shared_object_id"] = number
    return entry


def _with_lambdas(obj: Any) -> dict[str, Any]:
    """Return a configuration; of a `Lambda`, its lambdas are written as byte code."""
    config = obj.get_config()
    if _active.references is not None or not getattr(obj, "saves_lambdas", False):
        return config
    return {
        key: _lambda_entry(value)
        if getattr(value, "__name__", "") == "<lambda>"
        else value
        for key, value in config.items()
    }


def plain_config(config: dict[str, Any]) -> dict[str, Any]:
    """Serialize the values of a configuration."""
    return {key: _plain(value) for key, value in config.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        parts = [_plain(part) for part in value]
        return tuple(parts) if isinstance(value, tuple) else parts
    if not isinstance(value, dict):
        return serialize_keras_object(value)
    return value if "class_name" in value else plain_config(value)


def deserialize_keras_object(
    config: Any,
    custom_objects: dict[str, Any] | None = None,
    safe_mode: bool = True,
    **kwargs: Any,
) -> Any:
    """Rebuild an object from plain data.

    `module_objects=`, as in Keras 2: where else to look for names. A name alone then
    means the function, or the class with its defaults.
    """
    module_objects = _module_objects(kwargs)
    if module_objects is not None:
        with custom_object_scope(module_objects), custom_object_scope(custom_objects):
            return _by_name(config)
    if custom_objects:
        if isinstance(config, str) and config in custom_objects:
            return custom_objects[config]
        with custom_object_scope(custom_objects):
            return deserialize_keras_object(config)
    if isinstance(config, (list, tuple)):
        return [deserialize_keras_object(part) for part in config]
    if not isinstance(config, dict):
        return config
    if "class_name" in config:
        return _rebuild(config)
    return {key: deserialize_keras_object(value) for key, value in config.items()}


def _module_objects(kwargs: dict[str, Any]) -> dict[str, Any] | None:
    """Return the classes and functions of a module, from Keras 2's arguments."""
    objects = kwargs.pop("module_objects", None)
    kwargs.pop("printable_module_name", None)
    if kwargs:
        raise TypeError(f"deserialize_keras_object takes no {', '.join(kwargs)}.")
    if objects is None:
        return None
    return {name: value for name, value in objects.items() if callable(value)}


def _by_name(config: Any) -> Any:
    """Return what a name alone means; a name that is not known stays one."""
    if not isinstance(config, str):
        return deserialize_keras_object(config)
    registered = get_registered_object(config)
    if registered is None:
        return config
    return registered() if inspect.isclass(registered) else registered


def arguments_from(config: dict[str, Any]) -> dict[str, Any]:
    """Rebuild the values of a configuration; tuples stay tuples, as they came."""
    arguments = {}
    for key, value in config.items():
        argument = deserialize_keras_object(value)
        arguments[key] = tuple(argument) if isinstance(value, tuple) else argument
    return arguments


def _rebuild(entry: dict[str, Any]) -> Any:
    """Rebuild an object, a function, a class or a special value from its entry."""
    kind = entry["class_name"]
    budget.count("objects")
    if kind in _SPECIAL_VALUES:
        return _SPECIAL_VALUES[kind](entry)
    if kind == "__keras_tensor__" or "config" not in entry:
        return entry
    if kind == "function" and not isinstance(entry["config"], str):
        raise TypeError(
            "Expected 'config' to be a non-null str, the name of a function, got "
            f"{entry['config']!r:.80}."
        )
    obj = find_class(entry)
    if kind in ("function", "__class__"):
        return obj
    shared = entry.get("shared_object_id")
    if shared is not None and _active.sharing and shared in _active.sharing[-1]:
        return _active.sharing[-1][shared]
    with budget.deeper():
        rebuilt = _constructed(obj, entry["config"] or {})
    for step in ("build", "compile"):
        restore = getattr(rebuilt, f"{step}_from_config", None)
        if entry.get(f"{step}_config") and restore is not None:
            restore(entry[f"{step}_config"])
    if shared is not None and _active.sharing:
        _active.sharing[-1][shared] = rebuilt
    return rebuilt


def _constructed(cls: Any, config: Any) -> Any:
    is_old_model = isinstance(config, list) and hasattr(cls, "fit")
    if not isinstance(config, dict) and not is_old_model:
        raise TypeError(f"Expected 'config' to be a dict, got {config!r:.80}.")
    if hasattr(cls, "from_config"):
        return cls.from_config(config)
    return cls(**arguments_from(config))


def _slice(entry: dict[str, Any]) -> slice:
    parts = (entry["config"][part] for part in ("start", "stop", "step"))
    return slice(*map(deserialize_keras_object, parts))


def _lambda(entry: dict[str, Any]) -> Any:
    """Return the lambda that this process wrote in this form; run no code of a file."""
    function = _lambda_written(entry["config"])
    if function is not None:
        return function
    raise ValueError(
        "This file holds a Python lambda as byte code, and to load it would mean "
        "arbitrary code execution. Ganglion never executes code from a file: build "
        "the model by its script and read the weights with `load_weights`; or "
        "define the function by name, pass it in `custom_objects`, and save the "
        "model again."
    )


_SPECIAL_VALUES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "__numpy__": lambda entry: _array(**entry["config"]),
    "__tensor__": lambda entry: _array(**entry["config"]),
    "__slice__": _slice,
    "__bytes__": lambda entry: str(entry["config"]["value"]).encode(),
    "__ellipsis__": lambda entry: Ellipsis,
    "__lambda__": _lambda,
}


def _array(value: Any, dtype: Any) -> np.ndarray:
    """Return an array of numbers; of other types, an item may be of any size."""
    kind = np.dtype(dtype)
    if (kind.kind not in "biufc" and kind.name != "bfloat16") or kind.hasobject:
        raise ValueError(f"an array of {str(dtype)!r:.40} holds no numbers")
    return np.array(value, dtype=kind)


def find_class(entry: dict[str, Any]) -> Any:
    """Find the class or function an entry means: the user's first, then ours."""
    kind, module = entry["class_name"], entry.get("module")
    name = entry["config"] if kind in ("function", "__class__") else kind
    registered = entry.get("registered_name")
    for candidate in (registered, name, f"Custom>{name}"):
        definition = get_registered_object(candidate) if candidate else None
        if definition is not None:
            return definition
    if kind == "function" and ">" not in str(name):
        # Files of Keras up to 3.6 leave out the package of a registered function.
        for full, definition in list(_custom.items()):
            if full.endswith(f">{name}"):
                return definition
    for where, known in list(_builtin):  # another thread may be importing
        definition = _builtin[where, known]
        if kind == "function" and inspect.isclass(definition):
            continue
        if known == name and (not module or _is_same_module(where, module)):
            if registered and registered not in (name, kind):
                raise ValueError(
                    f"`registered_name={registered!r}` is not known, and {name!r} "
                    "resolved to a Keras built-in, which has none: pass the object in "
                    "`custom_objects`, or remove the `registered_name`."
                )
            return definition
    every = [known for _, known in list(_builtin)]
    raise ValueError(
        f"Unknown object {name!r} (module {module}). Pass it in `custom_objects` or "
        "decorate it with @ganglion.saving.register_keras_serializable() before "
        f"loading. {closest(str(name), every)}"
    )


def _is_same_module(ours: str, theirs: str) -> bool:
    """Compare a Keras module with its public or private spelling."""
    ours = ours.replace("keras.src.", "keras.")
    theirs = theirs.replace("keras.src.", "keras.").replace("tf_keras.", "keras.")
    return theirs == ours or theirs.startswith(ours + ".") or theirs == "builtins"


# ---- identifiers ------------------------------------------------------------------


def resolve(module: str, identifier: Any, kind: str) -> Any:
    """Return the object that `"relu"`, a configuration or an object itself means.

    A class is made with its defaults; an unknown name is refused with the closest ones.
    """
    if identifier is None:
        return None
    if isinstance(identifier, dict):
        if "class_name" not in identifier:
            raise ValueError(
                f"{identifier!r} is not a configuration of a {kind}: it has no "
                "`class_name`."
            )
        if (module, identifier["class_name"]) in _builtin:
            # Losses and metrics share names.
            identifier = {"module": module, **identifier}
        return deserialize_keras_object(identifier)
    if isinstance(identifier, str):
        identifier = look_up(module, identifier, kind)
    if inspect.isclass(identifier):
        return identifier()
    if callable(identifier) or hasattr(identifier, "get_config"):
        return identifier
    raise ValueError(f"{identifier!r} is no {kind}: give a name, an object or None.")


class Configured:
    """A small object that is remade from the attributes its `__init__` names."""

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that make an equal object."""
        names = list(inspect.signature(type(self).__init__).parameters)[1:]
        return {name: getattr(self, name) for name in names if hasattr(self, name)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """Make an object from its configuration."""
        return cls(**arguments_from(config))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Configured) or type(self) is not type(other):
            return False
        return bool(_key(self.get_config()) == _key(other.get_config()))

    def __hash__(self) -> int:
        return hash((type(self), _key(self.get_config())))


def _key(value: Any) -> Any:
    """Return a hashable key that is equal for equal configurations.

    >>> _key({"b": [1, 2.0]}) == _key({"b": (1.0, 2)})
    True
    """
    if isinstance(value, dict):
        return frozenset((name, _key(part)) for name, part in value.items())
    if isinstance(value, (list, tuple)):
        return tuple(_key(part) for part in value)
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    try:
        hash(value)
    except TypeError:
        return type(value), id(value)
    return value


def passed(scope: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of an `__init__` from its ``locals()``, to pass them on.

    Every class spells out Keras' full signature; this saves spelling it out twice.
    """
    arguments = {
        k: v for k, v in scope.items() if k not in ("self", "__class__", "kwargs")
    }
    return arguments | scope.get("kwargs", {})


def with_defaults(function: Any, qualname: str, module: str, /, **defaults: Any) -> Any:
    """Return a copy of a function under another name, with some other defaults.

    >>> def scale(x, factor=2):
    ...     return x * factor
    >>> with_defaults(scale, "triple", __name__, factor=3)(5)
    15
    """
    copy = types.FunctionType(
        function.__code__, function.__globals__, closure=function.__closure__
    )
    functools.update_wrapper(copy, function)
    del copy.__wrapped__  # type: ignore[attr-defined]
    copy.__qualname__, copy.__module__ = qualname, module
    parameters = inspect.signature(function).parameters.values()
    copy.__defaults__ = tuple(
        defaults.get(parameter.name, parameter.default)
        for parameter in parameters
        if parameter.default is not parameter.empty
        and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy
