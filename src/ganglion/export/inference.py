"""A model's forward pass as a program without state: its weights are constants.

Values that depend only on weights are computed here, once, and factors and terms per
channel after a product (batch normalisation, mostly) are folded into its weights.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ganglion import tree
from ganglion.compiler.ir.graph import (
    Input,
    Node,
    Program,
)
from ganglion.compiler.ir.host import KIND as HOST
from ganglion.export.constants import with_constant_weights
from ganglion.export.ports import STRINGS, Port
from ganglion.export.text.front import Front, front_of
from ganglion.layers.call_arguments import call_signature
from ganglion.layers.construction import ShapesByName
from ganglion.layers.input_spec import InputSpec
from ganglion.layers.preprocessing.host import HostOutputs
from ganglion.symbolic import TEXT, KerasTensor
from ganglion.training.tracing import program_of, uncollected
from ganglion.variables import Scope


@dataclass(frozen=True)
class Inference:
    """The forward pass of a model for some rows at once."""

    name: str  # of the model
    program: Program  # its data are the numbers, its results the outputs, in order
    rows: int
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    front: Front | None = None  # from the inputs to the numbers

    @property
    def numbers(self) -> tuple[Port, ...]:
        """The data of the program: the inputs, or the results of its front."""
        return self.inputs if self.front is None else self.front.begins_with


def inference_of(
    model: Any, rows: int = 1, input_signature: Any = None, may_draw: bool = False
) -> Inference:
    """Trace a built model; refuse layers that no file can hold, by name.

    Layers that run on the host (for text, a lookup, a hash) are its front, and not in
    the program, which takes their results.

    Args:
        model: The model.
        rows: How many rows the program takes at once.
        input_signature: The shape and type of each input that the model leaves open.
        may_draw: Whether the format has its own random numbers.
    """
    ports = _input_ports(model, input_signature)
    front = _front(model, ports)
    numbers = ports if front is None else front.begins_with
    data = [Input(port.name, (rows, *port.shape), port.dtype) for port in numbers]
    with uncollected:
        with Scope(training=False) as scope:
            if front is not None:
                passed: Any = [HostOutputs(front.finished(data))]
            else:
                passed = _arguments(model, input_signature, data)
            outputs = tree.flatten(model(*passed))
        if may_draw:  # the state of a generator is not part of the program
            for seed in model._seed_generators:
                scope.writes.pop(seed.state, None)
        leaves = {f"output/{number}": leaf for number, leaf in enumerate(outputs)}
        step = program_of(f"{model.name}.export", scope, data, leaves)
        # Before `_refuse_state`, which would name the generator, not the layer.
        _refuse_nodes(step.program.graph.nodes, may_draw)
        _refuse_state(step.program, step.variables)
        weights = {name: step.variables[name].array for name in step.program.state}
        program = with_constant_weights(step.program, weights, data)
    names = identifiers(
        _output_names(model, len(outputs)), taken=[port.name for port in ports]
    )
    return Inference(
        model.name,
        program,
        rows,
        ports,
        tuple(
            _output_port(name, value.shape, value.dtype, rows)
            for name, value in zip(names, outputs, strict=True)
        ),
        front,
    )


# ---- ends ----------------------------------------------------------------------------


def _input_ports(model: Any, signature: Any) -> tuple[Port, ...]:
    network = model._network
    if network is None:
        tensors = tree.flatten(_specs(model, signature))
        names = [getattr(spec, "name", None) or "" for spec in tensors]
        names = [name or f"input_{number}" for number, name in enumerate(names)]
    else:
        tensors, names = network.flat_inputs, network.input_names
        specs = [None] * len(tensors) if signature is None else tree.flatten(signature)
        if len(specs) != len(tensors):
            raise ValueError(
                f"`input_signature` describes {len(specs)} inputs, the model "
                f'"{model.name}" has {len(tensors)}.'
            )
        tensors = [
            tensor if spec is None or tensor.dtype == TEXT else spec
            for spec, tensor in zip(specs, tensors, strict=True)
        ]
    names = ["input"] if len(tensors) == 1 else list(names)
    for number, spec in enumerate(tree.flatten(signature)):
        if isinstance(spec, InputSpec) and spec.name:
            names[number] = spec.name
    names = identifiers(names)
    pairs = zip(names, tensors, strict=True)
    return tuple(_port(name, spec) for name, spec in pairs)


def _front(model: Any, ports: Sequence[Port]) -> Front | None:
    """Return the front of a model, None if it has none."""
    network = model._network
    if network is not None and network.host_part is not None:
        return front_of(network, ports)
    for port in ports:
        if port.is_text:
            raise ValueError(
                f'The input "{port.name}" is text, and no layer makes numbers of it.'
            )
    return None


def _specs(model: Any, signature: Any) -> Any:
    """Return the inputs of a subclass: by the signature, or by its first call."""
    names = _array_names(model)
    if signature is not None:
        is_one = isinstance(signature, (list, tuple)) and len(signature) == 1
        return signature[0] if is_one and len(names) < 2 else signature
    shapes = model._build_shape
    if shapes is None or (len(names) > 1 and not isinstance(shapes, ShapesByName)):
        raise ValueError(
            f'The inputs of the model "{model.name}" are not known, as it is a '
            "subclass: give `input_signature=[InputSpec(shape=(None, ...))]`."
        )
    if len(names) > 1:
        shapes = [shapes[f"{name}_shape"] for name in names]
    return tree.map_shape_structure(
        lambda shape: KerasTensor((None, *shape[1:])), shapes
    )


def _array_names(model: Any) -> list[str]:
    """Return the arguments that `call` of a subclass cannot do without."""
    return [
        name
        for name, parameter in call_signature(model).parameters.items()
        if parameter.default is parameter.empty
        and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        and name not in ("training", "mask")
    ]


def _port(name: str, spec: Any) -> Port:
    if getattr(spec, "shape", None) is None:
        raise ValueError(
            f'`input_signature` gives no shape for the input "{name}", but {spec!r}: '
            "use InputSpec(shape=(None, 100, 8)), say."
        )
    shape = tuple(spec.shape)
    if None in shape[1:]:
        raise ValueError(
            f'The input "{name}" has the shape {shape}: an exported file has fixed '
            "sizes. Give `input_signature=[InputSpec(shape=(None, 100, 8))]`, or "
            "--shape 100x8."
        )
    if spec.dtype == TEXT:
        return Port(name, shape[1:], STRINGS)
    dtype = getattr(spec.dtype, "name", spec.dtype)
    return Port(name, shape[1:], np.dtype(dtype or "float32"))


def _output_port(name: str, shape: tuple[int, ...], dtype: np.dtype, rows: int) -> Port:
    if not shape or shape[0] != rows:
        raise ValueError(
            f'The output "{name}" has the shape {shape} for {rows} rows: only models '
            "whose outputs have a row for each row can be exported."
        )
    return Port(name, shape[1:], dtype)


def _output_names(model: Any, count: int) -> list[str]:
    names = model.output_names
    if count == 1 or names is None or len(names) != count:
        return ["output"] if count == 1 else [f"output_{n}" for n in range(count)]
    return list(names)


# Words of C and C++, names in their headers, and other parameters of `predict`.
_WORDS = """alignas alignof and and_eq asm auto bitand bitor bool break case catch char
char8_t char16_t char32_t class co_await co_return co_yield compl concept const
const_cast consteval constexpr constinit continue decltype default delete do double
dynamic_cast else enum explicit export extern false float for friend goto if inline int
linux long mutable namespace new noexcept not not_eq nullptr operator or or_eq private
protected public register reinterpret_cast requires restrict return short signed sizeof
static static_assert static_cast struct switch template this thread_local throw true try
typedef typeid typename typeof typeof_unqual union unix unsigned using virtual void
volatile wchar_t while xor xor_eq
HUGE_VAL HUGE_VALF HUGE_VALL INFINITY NAN NULL int8_t int16_t int32_t int64_t intptr_t
max_align_t ptrdiff_t size_t uint8_t uint16_t uint32_t uint64_t uintptr_t
workspace weights rows row start memory file"""
_RESERVED = frozenset(_WORDS.split())


def identifiers(names: Iterable[str], taken: Iterable[str] = ()) -> list[str]:
    """Return distinct names that are valid in any language.

    They differ in more than case: the macros of a C header are in capitals.

    >>> identifiers(["a.b", "a b", "a_b_1", "A_B", "int"], taken=["int_"])
    ['a_b', 'a_b_1', 'a_b_1_1', 'A_B_2', 'int__1']
    """
    used = {name.lower() for name in taken}
    words = []
    for name in names:
        word = re.sub(r"\W", "_", name, flags=re.ASCII)
        word = f"_{word}" if word[:1].isdigit() else word
        word += "_" * (word in _RESERVED)
        numbered = (f"{word}_{number}" for number in itertools.count(1))
        candidates = itertools.chain([word], numbered)
        words.append(next(word for word in candidates if word.lower() not in used))
        used.add(words[-1].lower())
    return words


def _arguments(model: Any, signature: Any, values: list[Input]) -> Any:
    """Return the arguments that the model is called with."""
    network = model._network
    if network is not None:
        structure = tree.pack(network.inputs, values)
        is_list = isinstance(structure, (list, tuple)) and len(structure) == 1
        return [structure[0] if is_list else structure]
    structure = tree.pack(_specs(model, signature), values)
    return structure if len(_array_names(model)) > 1 else [structure]


# ---- refusals ------------------------------------------------------------------------


def _refuse_state(program: Program, variables: Mapping[str, Any]) -> None:
    written = [name for name in program.state if name in program.graph.outputs]
    if written:
        paths = ", ".join(variables[name].path for name in written)
        raise ValueError(
            f"The model changes {paths} when it predicts, and an exported file keeps "
            "nothing from call to call: make the layer not stateful, and let nothing "
            "be drawn at random in inference."
        )


def _refuse_nodes(nodes: Iterable[Node], may_draw: bool) -> None:
    for node in nodes:
        layer = f'Layer "{node.origin.layer}"' if node.origin.layer else "The model"
        if node.op.kind == "random" and not may_draw:
            raise ValueError(
                f"{layer} draws random numbers when it predicts, which no exported "
                "file can: take it out for inference."
            )
        if node.op.kind == HOST:
            raise ValueError(
                f"{layer} calls {node.op.name}, which runs in Python and in no "
                "exported file: export the model that ends before it."
            )
        if "body" in node.attrs:
            _refuse_nodes(node.attrs["body"].nodes, may_draw)
