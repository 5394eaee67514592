"""Steps that several models share: traced and compiled for the first of them.

Two models whose structures are equal have equal steps, each with its own variables. A
structure is all that a step is traced from: layers, losses, metrics, optimizer and
every number in them that is not a variable. It is read off the objects themselves, so
that what was changed after construction counts. Models that differ in hyperparameters
are traced each, and share what is compiled: such numbers are inputs of a program.
Objects and functions that are not Ganglion's may look at anything: a model with such is
traced, and shares what is compiled with those whose traces are equal.
"""

from __future__ import annotations

import functools
import threading
import types
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ganglion import config, random, tree
from ganglion.compiler import registry
from ganglion.compiler.ir.graph import Constant, Graph, Input, Program, Value
from ganglion.random import SeedGenerator
from ganglion.symbolic import KerasTensor
from ganglion.training.compile_utils import Outputs, is_structured
from ganglion.training.data_adapters import Batch, Signature
from ganglion.training.tracing import Step
from ganglion.variables import Variable, suspended

# What an object remembers, or is called, and no step depends on.
_IGNORED = frozenset(
    (
        "name", "path", "_path", "created", "grad", "history", "notes",
        "stop_training", "stop_evaluating", "stop_predicting", "initial_epoch",
        "steps_per_execution", "jit_compile", "_step_cache", "_init_values",
        "_initial_weights", "_compile_arguments", "_was_called",
        "_warned_of_structure", "_inferred", "_tracker", "_output_names",
        "input_hint", "_array", "steps_done", "saved_metrics", "was_loaded",
        "callbacks", "saved_callbacks", "epoch_logs", "unfolded_calls", "is_plain",
    )
)  # fmt: skip
_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis))
_EXACT = frozenset((bool, int, str, bytes, type(None)))  # equal ones are the same


class _UnknownCodeError(Exception):
    """Something in a model whose meaning cannot be read off it."""


@dataclass(frozen=True)
class Structure:
    """All that steps of a model depend on, and its variables in a fixed order."""

    key: tuple[Any, ...]
    variables: tuple[Variable, ...]


class _Reader:
    """Reads a structure: objects are told apart by the order they are met in."""

    def __init__(self) -> None:
        self.variables: list[Variable] = []
        self._tokens: list[Any] = []
        self._seen: dict[int, int] = {}
        self._kept: list[Any] = []  # so that ids stay their own

    def read(self, *things: Any) -> Structure:
        for thing in things:
            self._visit(thing)
        return Structure(tuple(self._tokens), tuple(self.variables))

    def _visit(self, thing: Any) -> None:
        if type(thing) in _EXACT:  # most of what there is
            self._tokens.append((type(thing), thing))
            return
        if isinstance(thing, _PLAIN):
            # Equal numbers of different types are different: 1, 1.0, True, -0.0.
            self._tokens.append((type(thing).__name__, repr(thing)))
            return
        number = self._seen.get(id(thing))
        if number is not None:
            self._tokens.append(("seen", number))
            return
        self._seen[id(thing)] = len(self._seen)
        self._kept.append(thing)
        if isinstance(thing, Variable):
            self.variables.append(thing)
            kind = (thing.unsynced_array.shape, str(thing.unsynced_array.dtype))
            self._tokens.append(("variable", *kind))
            self._visit_attributes(thing)
        elif isinstance(thing, (list, tuple, set, frozenset, dict)):
            self._visit_container(thing)
        elif isinstance(thing, (np.ndarray, np.generic)):
            array = np.asarray(thing)
            self._tokens.append((array.shape, str(array.dtype), array.tobytes()))
        else:
            self._visit_object(thing)

    def _visit_container(self, thing: Any) -> None:
        if not is_ours(type(thing)) and type(thing).__module__ not in _STANDARD:
            raise _UnknownCodeError
        self._tokens.append((type(thing).__name__, len(thing)))
        if isinstance(thing, dict):
            for pair in thing.items():
                self._visit_each(pair)
        elif isinstance(thing, (set, frozenset)):
            if not all(isinstance(element, _PLAIN) for element in thing):
                raise _UnknownCodeError  # in no order that two models share
            self._tokens.append(tuple(sorted(map(repr, thing))))
        else:
            self._visit_each(thing)

    def _visit_each(self, things: Any) -> None:
        for thing in things:
            self._visit(thing)

    def _visit_object(self, thing: Any) -> None:
        if isinstance(thing, (type, np.dtype)):
            self._tokens.append(("type", _known_name(thing)))
        elif isinstance(thing, types.FunctionType):
            line = thing.__code__.co_firstlineno  # lambdas have no name of their own
            self._tokens.append(("function", _known_name(thing), line))
            cells = thing.__closure__ or ()
            self._visit_each([cell.cell_contents for cell in cells])
            self._visit_each([thing.__defaults__, thing.__kwdefaults__])
        elif isinstance(thing, types.MethodType):
            self._tokens.append(("method", thing.__name__))
            self._visit(thing.__self__)
        elif isinstance(thing, functools.partial):
            self._tokens.append("partial")
            self._visit_each((thing.func, thing.args, thing.keywords))
        else:
            kind: Any = type(thing)
            self._tokens.append(("object", _class_name(kind)))
            self._visit_attributes(thing)

    def _visit_attributes(self, thing: Any) -> None:
        ignored = _IGNORED
        generator = getattr(thing, "seed_generator", None)
        if isinstance(thing, SeedGenerator) or isinstance(generator, SeedGenerator):
            ignored = ignored | {"seed"}  # where the generator began
        for name, value in _attributes(thing):
            # Weights are there already: what drew them does not matter any more.
            if name not in ignored and not name.endswith("initializer"):
                self._tokens.append(name)
                self._visit(value)


_STANDARD = ("builtins", "collections")


def is_ours(kind: Any) -> bool:
    """Return whether a class or function is Ganglion's."""
    module = str(getattr(kind, "__module__", ""))
    return module == "ganglion" or module.startswith("ganglion.")


def _known_name(thing: Any) -> str:
    """Return what a class or function is called, if it is Ganglion's or Python's."""
    if isinstance(thing, np.dtype):
        return str(thing)
    module = str(getattr(thing, "__module__", ""))
    if not is_ours(thing) and module not in (*_STANDARD, "numpy"):
        raise _UnknownCodeError
    return f"{module}.{thing.__qualname__}"


@functools.cache
def _class_name(kind: Any) -> str:
    return _known_name(kind)


def _attributes(thing: Any) -> Iterator[tuple[str, Any]]:
    yield from vars(thing).items() if hasattr(thing, "__dict__") else ()
    kind: Any = type(thing)
    for name in _slots_of(kind):
        if hasattr(thing, name):
            yield name, getattr(thing, name)


@functools.cache
def _slots_of(kind: Any) -> tuple[str, ...]:
    names: list[str] = []
    for base in kind.__mro__:
        slots = base.__dict__.get("__slots__", ())
        names += (slots,) if isinstance(slots, str) else slots
    return tuple(name for name in names if name not in ("__dict__", "__weakref__"))


def structure_of(model: Any) -> Structure | None:
    """Return the structure of a model that is ready to train, None if it is hidden."""
    calls = model._network.calls if model._network is not None else []
    try:
        # Call after call: from the last one on, the way back would be deep.
        return _Reader().read(*calls, model)
    except (_UnknownCodeError, RecursionError):
        return None


# ---- the steps that models share -----------------------------------------------------


@dataclass(frozen=True)
class _Shared:
    """A step of the first model, and where its variables stand in a structure."""

    step: Step
    executable: registry.Executable
    positions: dict[str, int]

    def of(self, structure: Structure) -> tuple[Step, registry.Executable]:
        """Return the step with the variables of another model."""
        own = {name: structure.variables[n] for name, n in self.positions.items()}
        # Equal structures have equal numbers, which no step changes.
        variables = {**own, **self.step.variables}
        return replace(self.step, variables=variables), self.executable


class SharedSteps:
    """The compiled steps of a set of models, each made once for equal models.

    A model whose structure is known is not even traced. Any other one is, and uses what
    was compiled for a program that computes the same.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._steps: dict[Any, _Shared | None] = {}
        self._programs: dict[Any, tuple[Program, registry.Executable]] = {}
        self.traces = self.compilations = 0

    def step(
        self,
        key: tuple[Any, ...],
        structure: Structure | None,
        trace: Callable[[], Step],
        compile_step: Callable[[Step], registry.Executable],
    ) -> tuple[Step, registry.Executable]:
        """Return a step of a model with this structure; make it if it is new."""
        with self._lock:
            if structure is not None:
                key = (*key, structure.key)
                shared = self._steps.get(key)
                if shared is not None:
                    return shared.of(structure)
            self.traces += 1
            step = trace()
            _refuse_default_generator(step)
            step, executable = self._compiled(step, compile_step)
            if structure is not None and key not in self._steps:
                self._steps[key] = _shareable(step, executable, structure)
            return step, executable

    def _compiled(
        self, step: Step, compile_step: Callable[[Step], registry.Executable]
    ) -> tuple[Step, registry.Executable]:
        """Return a step as a program that was compiled before, if one is equal."""
        key = program_key(step.program)
        known = self._programs.get(key) if key is not None else None
        if known is not None:
            program, executable = known
            names = list(zip(program.state, step.program.state, strict=True))
            own = {theirs: step.variables[name] for theirs, name in names}
            numbers = frozenset(t for t, n in names if n in step.numbers)
            shared = replace(step, program=program, variables=own, numbers=numbers)
            return shared, executable
        self.compilations += 1
        executable = compile_step(step)
        if key is not None and not executable.keeps_on_device and not step.late:
            self._programs[key] = step.program, executable
        return step, executable


# ---- the same model, made again ------------------------------------------------------


@dataclass(frozen=True)
class _Trace:
    """A step without its variables, and where those stand in a structure."""

    step: Step
    positions: dict[str, int]

    def of(self, structure: Structure) -> Step:
        """Return the step with the variables of a model of this structure."""
        own = {name: structure.variables[n] for name, n in self.positions.items()}
        return replace(self.step, variables={**own, **self.step.variables})


class RecentTraces:
    """The last steps that were traced: the same model is often made again.

    For another seed, fold or rate, say; then it needs no trace of its own.
    """

    def __init__(self, most: int) -> None:
        self._lock, self._most = threading.Lock(), most
        self._traces: OrderedDict[Any, _Trace] = OrderedDict()

    def get(self, key: Any, structure: Structure) -> Step | None:
        """Return the step of a model of this structure, if one was traced."""
        with self._lock:
            trace = self._traces.get(key)
            if trace is None:
                return None
            self._traces.move_to_end(key)
            return trace.of(structure)

    def add(self, key: Any, structure: Structure, step: Step) -> None:
        """Keep a step, unless it uses or holds more than its structure says."""
        positions = _positions(step, structure)
        if positions is None or _constant_bytes(step) > MOST_CONSTANT_BYTES:
            return
        with self._lock:
            self._traces[key] = _Trace(_without_variables(step), positions)
            if len(self._traces) > self._most:
                self._traces.popitem(last=False)

    def clear(self) -> None:
        """Keep none."""
        with self._lock:
            self._traces.clear()


MOST_CONSTANT_BYTES = 1 << 20  # of a step that is kept
RECENT = RecentTraces(most=32)


def _constant_bytes(step: Step) -> int:
    nodes = step.program.graph.nodes
    constants = {x for node in nodes for x in node.inputs if isinstance(x, Constant)}
    return sum(constant.array.nbytes for constant in constants)


def _positions(step: Step, structure: Structure) -> dict[str, int] | None:
    """Return where the variables of a step stand in a structure; None if not in it."""
    positions = {id(v): number for number, v in enumerate(structure.variables)}
    own = {n: v for n, v in step.variables.items() if n not in step.numbers}
    if step.late or any(id(variable) not in positions for variable in own.values()):
        return None
    return {name: positions[id(variable)] for name, variable in own.items()}


def _without_variables(step: Step) -> Step:
    """Return a step with its numbers alone: who keeps it must keep no model alive."""
    return replace(step, variables={n: step.variables[n] for n in step.numbers})


def _refuse_default_generator(step: Step) -> None:
    if random.is_default_state(step.variables.values()):
        raise ValueError(
            "The model draws random numbers without a seed, from one generator that "
            "all models would share: give what draws them a `random.SeedGenerator` of "
            "its own."
        )


def program_key(program: Program) -> tuple[Any, ...] | None:
    """Return all that a program computes, whatever its state is called.

    None if it calls functions of the host, of which nothing is known.
    """
    roles: dict[str, Any] = dict(zip(program.data, program.data, strict=True))
    roles |= {name: number for number, name in enumerate(program.state)}
    try:
        graph = _graph_tokens(program.graph, roles)
    except _UnknownCodeError:
        return None
    return (*config.traced_choices(), program.data, program.results, graph)


def _graph_tokens(graph: Graph, roles: Mapping[str, Any]) -> tuple[Any, ...]:
    numbers: dict[Value, int] = {}
    tokens: list[Any] = []
    for argument in graph.inputs:
        role = roles.get(argument.name, argument.name)
        tokens.append((role, argument.shape, str(argument.dtype)))
        numbers[argument] = len(numbers)
    for node in graph.nodes:
        for value in node.inputs:
            if isinstance(value, Constant) and value not in numbers:
                numbers[value] = len(numbers)
                tokens.append(_attr_token(value.array))
        sources = tuple(numbers[value] for value in node.inputs)
        numbers[node] = len(numbers)
        attrs = tuple((name, _attr_token(a)) for name, a in node.attrs.items())
        tokens.append((node.op.name, sources, attrs, node.shape, str(node.dtype)))
    for name, value in graph.outputs.items():
        end: Any = numbers.get(value)
        if isinstance(value, Constant):
            end = _attr_token(value.array)
        tokens.append((roles.get(name, name), end))
    return tuple(tokens)


def _attr_token(attr: Any) -> Any:
    if isinstance(attr, _PLAIN):
        return type(attr).__name__, repr(attr)
    if isinstance(attr, (tuple, list)):
        return tuple(map(_attr_token, attr))
    if isinstance(attr, np.dtype):
        return str(attr)
    if isinstance(attr, (np.ndarray, np.generic)):
        array = np.asarray(attr)
        return array.shape, str(array.dtype), array.tobytes()
    if isinstance(attr, Graph):
        return _graph_tokens(attr, {})
    raise _UnknownCodeError


def _shareable(
    step: Step, executable: registry.Executable, structure: Structure
) -> _Shared | None:
    """Return a step for others to use; None if it uses what its structure has not."""
    positions = None if executable.keeps_on_device else _positions(step, structure)
    if positions is None:
        return None
    return _Shared(_without_variables(step), executable, positions)


# ---- a model ready to train ----------------------------------------------------------


def build_compiled(model: Any, names: Batch, signature: Signature) -> bool:
    """Build the losses and metrics of a model, as tracing its first step would.

    Returns whether that could be done: only a model made of Keras tensors says what it
    returns without being called.
    """
    network = model._network
    if network is None or not model.built:
        return False
    if network.host_part is not None or signature.change is not None:
        return False
    rows = {name: Input(name, shape, dtype) for name, shape, dtype in signature.columns}
    outputs = tree.map_leaves(lambda t: _stand_in(t, signature.batch), network.outputs)
    labels = names.map(rows.__getitem__).y
    if labels is None or is_structured(model.loss, Outputs(outputs)):
        return False
    with suspended():
        model.build_losses(labels, outputs)
    return True


def _stand_in(tensor: KerasTensor, batch: int) -> Input:
    """Return a value of the shape that an output has for a batch."""
    shape = [batch, *(1 if size is None else size for size in tensor.shape[1:])]
    return Input("output", tuple(shape), tensor.dtype)


def names_that_matter(model: Any, names: Batch) -> tuple[Any, ...]:
    """Return the names that the data or the optimizer may refer to."""
    by_name = any(isinstance(part, dict) for part in names)
    network = model._network
    ends = (network.input_names, network.output_names) if network else ()
    excluded = getattr(model.optimizer, "_never_decayed_names", None)
    weights = [variable.name for variable in model.trainable_weights]
    return (repr(ends) if by_name else "", tuple(weights) if excluded else ())
