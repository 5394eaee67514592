"""`ganglion.function`: a Python function over tensors and variables, compiled.

It is traced once for every signature: the shapes and types of its tensors, and the
values of other arguments. Side effects, such as printing, happen while it is traced.
Variables that it reads and assigns are the state of the compiled program.
"""

from __future__ import annotations

import functools
import inspect
import threading
import types
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ganglion import config, symbolic, tensors, tree
from ganglion.compiler import registry
from ganglion.compiler.ir.graph import Input, UnknownNumbersError, Value
from ganglion.system import uncompiled
from ganglion.system.records import record
from ganglion.system.terminal import tell_once
from ganglion.tensors import as_tensor
from ganglion.training.tracing import Step, program_of, state_arrays, uncollected
from ganglion.variables import Scope, Variable, current_scope, read

CACHED_TRACES = 64  # of a function
MANY_TRACES = 8  # after which the user is warned: each takes a compilation


def function(
    func: Callable[..., Any] | None = None,
    input_signature: Sequence[Any] | None = None,
    autograph: bool = True,
    jit_compile: bool | None = None,
    reduce_retracing: bool = False,
) -> Any:
    """Compile a function; as a decorator, with or without arguments.

    `input_signature` gives the type and the shape (None: any size) that each argument
    must have. Every function is compiled for the exact shapes it is called with. If it
    inspects the numbers of a tensor, by Python's `if`, `while` or `float()`, it cannot
    be compiled: it runs as plain Python, or, without `autograph`, raises an error that
    names the alternative (`ops.cond`, `ops.while_loop`). Other Python code runs while
    tracing.
    The other arguments are those of TensorFlow and change nothing.

    >>> import ganglion as keras
    >>> total = keras.Variable(0.0)
    >>> @keras.function
    ... def add(x):
    ...     total.assign_add(keras.ops.sum(x))
    ...     return total * 2.0
    >>> add(keras.ops.ones((3,)))
    array(6., dtype=float32)
    >>> total.numpy()
    np.float32(3.0)
    """
    if func is None:
        return functools.partial(
            function,
            input_signature=input_signature,
            autograph=autograph,
            jit_compile=jit_compile,
            reduce_retracing=reduce_retracing,
        )
    return CompiledFunction(func, input_signature, autograph)


class _Eagerly(threading.local):
    chosen = False


_eagerly = _Eagerly()


def run_functions_eagerly(run_eagerly: bool) -> None:
    """Choose whether compiled functions run as plain Python, to look inside."""
    _eagerly.chosen = bool(run_eagerly)


def functions_run_eagerly() -> bool:
    """Return whether compiled functions run as plain Python."""
    return _eagerly.chosen


@record(guarded=True)
class _Trace:
    step: Step
    executable: registry.Executable
    inputs: tuple[str, ...]
    results: Any  # the structure, with the name of an output for each tensor


class CompiledFunction:
    """A function with the programs it was compiled to."""

    def __init__(
        self,
        python_function: Callable[..., Any],
        input_signature: Any = None,
        autograph: bool = True,
    ) -> None:
        self.python_function = python_function
        self._may_run_as_python = autograph
        self._specs = None if input_signature is None else tree.flatten(input_signature)
        self._traces: OrderedDict[Any, _Trace | None] = OrderedDict()
        self._lock = threading.RLock()
        self.tracing_count = 0
        functools.update_wrapper(self, python_function)
        self.name = getattr(python_function, "__name__", "function")
        self._signature = _signature(python_function)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """Allow methods to be compiled: the instance is an argument like any other."""
        return self if instance is None else types.MethodType(self, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program for these arguments; trace and compile it the first time."""
        args, kwargs = self._bound(args, kwargs)
        leaves = tree.flatten((args, kwargs))
        is_inside = current_scope() is not None or tensors.recording() is not None
        if is_inside or _eagerly.chosen or any(map(_is_traced, leaves)):
            return self.python_function(*args, **kwargs)
        if any(map(_runs_on_host, leaves)):
            uncompiled.note("calls of functions on texts or complex numbers", self.name)
            return self.python_function(*args, **kwargs)
        arrays = [_as_array(leaf) for leaf in leaves]
        if self._specs is not None:
            arrays = self._checked(arrays)
        structure = repr(tree.map_leaves(lambda leaf: 0, (args, kwargs)))
        key = (
            structure,
            tuple(map(_key, leaves, arrays)),
            config.backend_choice(),
            config.precise(),
            config.precision(),
            config.floatx(),
        )
        with self._lock:
            trace = self._trace_for(key, args, kwargs, arrays)
            if trace is not None:
                return _run(trace, arrays)
        uncompiled.note("calls of functions that look at numbers", self.name)
        return self.python_function(*args, **kwargs)

    def _trace_for(
        self, key: Any, args: Any, kwargs: Any, arrays: list[np.ndarray | None]
    ) -> _Trace | None:
        """Return the program for a signature, None where Python has to run."""
        if key not in self._traces:
            try:
                self._traces[key] = self._traced(args, kwargs, arrays)
            except UnknownNumbersError:
                if not self._may_run_as_python:
                    raise
                self._traces[key] = None
            if len(self._traces) > CACHED_TRACES:
                self._traces.popitem(last=False)
        self._traces.move_to_end(key)
        return self._traces[key]

    def _bound(self, args: Any, kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Return arguments in a canonical form, however they were passed."""
        if self._signature is None:
            return args, kwargs
        bound = self._signature.bind(*args, **kwargs)
        return bound.args, bound.kwargs

    def _checked(self, arrays: list[np.ndarray | None]) -> list[np.ndarray | None]:
        """Return the arrays with the types of the signature; raise for other shapes."""
        assert self._specs is not None
        numbers = [i for i, array in enumerate(arrays) if array is not None]
        if len(numbers) != len(self._specs):
            raise TypeError(
                f"`{self.name}` takes {len(self._specs)} tensors by its "
                f"`input_signature`, but was called with {len(numbers)}."
            )
        checked = list(arrays)
        for number, spec in zip(numbers, self._specs, strict=True):
            array = arrays[number]
            assert array is not None
            if not _fits(array.shape, spec.shape):
                raise TypeError(
                    f"`{self.name}` was called with a tensor of shape "
                    f"{array.shape}, its `input_signature` says {tuple(spec.shape)}."
                )
            checked[number] = array.astype(_dtype_name(spec.dtype), copy=False)
        return checked

    def _traced(
        self, args: Any, kwargs: Any, arrays: list[np.ndarray | None]
    ) -> _Trace:
        self.tracing_count += 1
        if self.tracing_count == MANY_TRACES:
            tell_once(
                f"ganglion: the function `{self.name}` was compiled {MANY_TRACES} "
                "times: once for every shape, and for every value of what is no "
                "tensor. Pass numbers that change as tensors: "
                "ops.convert_to_tensor(number)."
            )
        registry.expect()
        inputs = [
            None if array is None else Input(f"argument/{i}", array.shape, array.dtype)
            for i, array in enumerate(arrays)
        ]
        leaves = tree.flatten((args, kwargs))
        values = [
            leaf if value is None else value
            for leaf, value in zip(leaves, inputs, strict=True)
        ]
        with uncollected:
            with Scope() as scope:
                scope.training_is_set = False
                args, kwargs = tree.pack((args, kwargs), values)
                result = self.python_function(*args, **kwargs)
                outputs: dict[str, Value] = {}
                results = tree.map_leaves(functools.partial(_named, outputs), result)
            data = [value for value in inputs if value is not None]
            step = program_of(f"function.{self.name}", scope, data, outputs)
            name = registry.backend_for(step.program)
            executable = registry.backend(name).compile(step.program)
        names = tuple("" if value is None else value.name for value in inputs)
        return _Trace(step, executable, names, results)


def _run(trace: _Trace, arrays: list[np.ndarray | None]) -> Any:
    step, executable = trace.step, trace.executable
    by_name = dict(zip(trace.inputs, arrays, strict=True))
    columns = {n: a for n, a in by_name.items() if a is not None}
    for limit in step.limits:
        limit.check(columns[limit.column])
    if not step.program.graph.outputs:
        return trace.results
    # `np.ascontiguousarray` would make a vector of a scalar.
    data = {name: np.asarray(columns[name], order="C") for name in step.program.data}
    state = state_arrays(step, {}, executable.keeps_on_device)
    numbers = executable.run(data, state, 1, keep_on_device=True)

    def tensor(leaf: Any) -> Any:
        return as_tensor(numbers[leaf.name][0]) if isinstance(leaf, _Output) else leaf

    return tree.map_leaves(tensor, trace.results)


# ---- arguments and results -----------------------------------------------------------


@record(guarded=True)
class _Output:
    name: str


def _named(outputs: dict[str, Value], leaf: Any) -> Any:
    """Return the name under which a result is computed; other objects unchanged."""
    if not isinstance(leaf, (Value, Variable, np.ndarray)):
        return leaf
    name = f"result/{len(outputs)}"
    outputs[name] = read(leaf)
    return _Output(name)


class _Identity:
    """An object of the user's as part of a key, compared by identity."""

    def __init__(self, obj: Any) -> None:
        self._id = id(obj)
        try:
            self._object: Callable[[], Any] = weakref.ref(obj)
        except TypeError:
            self._object = lambda: obj

    def __hash__(self) -> int:
        return self._id

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Identity) or other._id != self._id:
            return False
        obj = self._object()
        return obj is not None and obj is other._object()


def _key(leaf: Any, array: np.ndarray | None) -> Any:
    if array is not None:
        return array.shape, array.dtype.name
    if leaf is None or isinstance(leaf, (bool, int, float, complex, str, bytes)):
        return type(leaf), leaf
    return _Identity(leaf)


def _as_array(leaf: Any) -> np.ndarray | None:
    """Return a tensor of any kind as an array, None for any other object."""
    if isinstance(leaf, (Variable, type)) or not hasattr(leaf, "__array__"):
        return None
    if hasattr(leaf, "detach"):
        leaf = leaf.detach().cpu()
    array = np.asarray(leaf)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return array if array.dtype.kind in "biufV" else None


def _runs_on_host(leaf: Any) -> bool:
    """Return whether a tensor holds what programs do not compute: text, complex.

    A program for each of their values would be compiled for one call.
    """
    return isinstance(leaf, np.ndarray) and leaf.dtype.kind in "OSUc"


def _is_traced(leaf: Any) -> bool:
    return isinstance(leaf, Value) or symbolic.is_symbolic(leaf)


def _signature(python_function: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(python_function)
    except (TypeError, ValueError):  # a function that is written in C
        return None


def _fits(shape: tuple[int, ...], allowed: Any) -> bool:
    if allowed is None:
        return True
    sizes = tuple(allowed)
    return len(sizes) == len(shape) and all(
        size is None or size == n for size, n in zip(sizes, shape, strict=True)
    )


def _dtype_name(dtype: Any) -> str:
    return str(getattr(dtype, "name", dtype))
