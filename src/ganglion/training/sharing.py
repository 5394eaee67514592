"""Steps that several models share: traced and compiled for the first of them.

Models of equal structure (`structure.py`) have equal steps. Models that differ in
hyperparameters are traced one by one, and share the compiled program: such numbers are
its inputs. So do models with objects or functions that are not Ganglion's, if their
traces are equal.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ganglion import config, random, tree
from ganglion.compiler import registry
from ganglion.compiler.ir.graph import Constant, Graph, Input, Program, Value
from ganglion.symbolic import KerasTensor
from ganglion.system.records import record
from ganglion.training.compile_utils import Outputs, is_structured
from ganglion.training.data_adapters import Batch, Signature
from ganglion.training.structure import PLAIN, Structure, UnknownCodeError
from ganglion.training.tracing import Step
from ganglion.variables import Variable, suspended

# ---- the variables of models ---------------------------------------------------------


class Users:
    """Which model uses each variable: those that one changes, no other may use.

    Models of a set run at the same time. If they shared a layer, each would train it
    for the others, in an arbitrary order.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # The variable and its model, if both are alive, and whether it is changed.
        self._users: dict[int, tuple[Any, Any, bool]] = {}

    def add(
        self, model: Any, changed: Iterable[Variable], read: Iterable[Variable]
    ) -> None:
        """Add the variables of a model's step; refuse those of another model."""
        owner = weakref.ref(model)
        with self._lock:
            for is_changed, variables in ((True, changed), (False, read)):
                for variable in variables:
                    self._add(owner, variable, is_changed)

    def _add(
        self, owner: weakref.ref[Any], variable: Variable, is_changed: bool
    ) -> None:
        known = self._users.get(id(variable))
        if known is not None and known[0]() is variable:
            _, others, was_changed = known
            other = others()
            if other is owner():
                is_changed = is_changed or was_changed
            elif other is not None and (is_changed or was_changed):
                raise SharedVariableError(variable)
        self._users[id(variable)] = weakref.ref(variable), owner, is_changed


class SharedVariableError(ValueError):
    """Two models of a set use a variable that one of them changes."""

    def __init__(self, variable: Variable) -> None:
        super().__init__(
            f"A model shares {variable.path!r} with another one of the set, and one of "
            "them changes it, for both. Give each model layers, metrics and an "
            "optimizer of its own (models.clone_model copies a model), or freeze the "
            "layers that they share."
        )


# ---- the steps that models share -----------------------------------------------------


@record(guarded=True)
class _Trace:
    """A step without its variables, and their positions in a structure.

    It keeps no model alive.
    """

    step: Step
    positions: dict[str, int]

    @classmethod
    def of(cls, step: Step, structure: Structure) -> _Trace | None:
        """Return a step without its variables, None if one is not in the structure."""
        positions = {id(v): number for number, v in enumerate(structure.variables)}
        variables = {n: v for n, v in step.variables.items() if n not in step.numbers}
        if step.late or any(
            id(variable) not in positions for variable in variables.values()
        ):
            return None
        numbers = {name: step.variables[name] for name in step.numbers}
        return cls(
            replace(step, variables=numbers),
            {name: positions[id(variable)] for name, variable in variables.items()},
        )

    def with_variables(self, structure: Structure) -> Step:
        """Return the step with the variables of a model of this structure."""
        variables = {name: structure.variables[n] for name, n in self.positions.items()}
        # Equal structures have equal numbers, which no step changes.
        return replace(self.step, variables={**variables, **self.step.variables})


class SharedSteps:
    """The compiled steps of a set of models, created once for equal models.

    A model whose structure is known is not even traced. Any other model is traced, and
    reuses a program that computes the same, if there is one.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._steps: dict[Any, tuple[_Trace, registry.Executable]] = {}
        self._programs: dict[Any, tuple[Program, registry.Executable]] = {}
        self.traces = self.compilations = 0
        self.epochs_at_once: dict[Any, int] = {}  # see `run_ahead.py`
        self.users = Users()

    def step(
        self,
        key: tuple[Any, ...],
        structure: Structure | None,
        trace: Callable[[], Step],
        compile_step: Callable[[Step], registry.Executable],
    ) -> tuple[Step, registry.Executable]:
        """Return a step of a model with this structure, from the cache or new."""
        with self._lock:
            if structure is not None:
                key = (*key, structure.key)
                shared = self._steps.get(key)
                if shared is not None:
                    trace_of_first, executable = shared
                    return trace_of_first.with_variables(structure), executable
            self.traces += 1
            step = trace()
            _refuse_default_generator(step)
            step, executable = self._compiled(step, compile_step)
            if structure is not None and not executable.keeps_on_device:
                shareable = _Trace.of(step, structure)
                if shareable is not None:
                    self._steps[key] = shareable, executable
            return step, executable

    def _compiled(
        self, step: Step, compile_step: Callable[[Step], registry.Executable]
    ) -> tuple[Step, registry.Executable]:
        """Return a step, with an equal program that was compiled before if possible."""
        key = program_key(step.program)
        known = self._programs.get(key) if key is not None else None
        if known is not None:
            program, executable = known
            names = list(zip(program.state, step.program.state, strict=True))
            variables = {theirs: step.variables[name] for theirs, name in names}
            numbers = frozenset(t for t, n in names if n in step.numbers)
            shared = replace(
                step, program=program, variables=variables, numbers=numbers
            )
            return shared, executable
        self.compilations += 1
        executable = compile_step(step)
        if key is not None and not executable.keeps_on_device and not step.late:
            self._programs[key] = step.program, executable
        return step, executable


# ---- models that are built repeatedly ------------------------------------------------


class RecentTraces:
    """The last steps that were traced: the same model is often built again.

    With another seed, fold or rate, for example, it is not traced again.
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
            return trace.with_variables(structure)

    def add(self, key: Any, structure: Structure, step: Step) -> None:
        """Keep a step, unless it has variables beside its structure or large arrays."""
        trace = _Trace.of(step, structure)
        if trace is None or _constant_bytes(step) > MOST_CONSTANT_BYTES:
            return
        with self._lock:
            self._traces[key] = trace
            if len(self._traces) > self._most:
                self._traces.popitem(last=False)

    def clear(self) -> None:
        """Forget all traces."""
        with self._lock:
            self._traces.clear()


MOST_CONSTANT_BYTES = 1 << 20  # of a step that is kept
RECENT = RecentTraces(most=32)


def _constant_bytes(step: Step) -> int:
    nodes = step.program.graph.nodes
    constants = {x for node in nodes for x in node.inputs if isinstance(x, Constant)}
    return sum(constant.array.nbytes for constant in constants)


def _refuse_default_generator(step: Step) -> None:
    if random.is_default_state(step.variables.values()):
        raise ValueError(
            "The model draws random numbers without a seed, from one generator that "
            "all models would share: give what draws them a `random.SeedGenerator` of "
            "its own."
        )


def program_key(program: Program) -> tuple[Any, ...] | None:
    """Return a key that is equal for programs that compute the same.

    The names of their states do not matter. None if a program calls functions of the
    host, which cannot be compared.
    """
    roles: dict[str, Any] = dict(zip(program.data, program.data, strict=True))
    roles |= {name: number for number, name in enumerate(program.state)}
    try:
        graph = _graph_tokens(program.graph, roles)
    except UnknownCodeError:
        return None
    return (*config.traced_choices(), program.data, program.results, graph)


def _graph_tokens(graph: Graph, roles: Mapping[str, Any]) -> tuple[Any, ...]:
    numbers: dict[Value, int] = {}
    tokens: list[Any] = []
    for argument in graph.inputs:
        role = roles.get(argument.name, argument.name)
        tokens.append((role, argument.shape, argument.dtype))
        numbers[argument] = len(numbers)
    for node in graph.nodes:
        for value in node.inputs:
            if isinstance(value, Constant) and value not in numbers:
                numbers[value] = len(numbers)
                tokens.append(_attr_token(value.array))
        sources = tuple(numbers[value] for value in node.inputs)
        numbers[node] = len(numbers)
        attrs = tuple((name, _attr_token(a)) for name, a in node.attrs.items())
        tokens.append((node.op.name, sources, attrs, node.shape, node.dtype))
    for name, value in graph.outputs.items():
        end: Any = numbers.get(value)
        if isinstance(value, Constant):
            end = _attr_token(value.array)
        tokens.append((roles.get(name, name), end))
    return tuple(tokens)


def _attr_token(attr: Any) -> Any:
    if isinstance(attr, PLAIN):
        return type(attr).__name__, repr(attr)
    if isinstance(attr, (tuple, list)):
        return tuple(map(_attr_token, attr))
    if isinstance(attr, np.dtype):
        return attr
    if isinstance(attr, (np.ndarray, np.generic)):
        array = np.asarray(attr)
        return array.shape, str(array.dtype), array.tobytes()
    if isinstance(attr, Graph):
        return _graph_tokens(attr, {})
    raise UnknownCodeError


# ---- a model ready to train ----------------------------------------------------------


def build_compiled(model: Any, names: Batch, signature: Signature) -> bool:
    """Build the losses and metrics of a model, as tracing its first step would.

    Returns whether that could be done: only for a model made of Keras tensors, whose
    outputs are known without a call.
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
