"""Emit kernels as LLVM IR: one text, and one machine code, for many shapes.

The key of a kernel is everything that its text depends on. Sizes, strides and some
constants are parameters, whose values are arguments of the call. A template is built
from the key alone: so equal keys have equal texts, whatever the sizes.

Kernels without a template have their sizes in their key, and most of these in their
text. Texts that are equal nevertheless, as for another batch size, are compiled once.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ganglion.compiler import cache
from ganglion.compiler.cpu.elementwise import (
    Facts,
    LoopText,
    fails_at_zero,
    suits_lanes,
)
from ganglion.compiler.cpu.emitter import Emitted, Emitter
from ganglion.compiler.cpu.epilogue import FACTS
from ganglion.compiler.cpu.host_calls import emit_host_call
from ganglion.compiler.cpu.passes.skip_zeros import NonzeroBits, Nonzeros
from ganglion.compiler.cpu.products.amx_gemm import AmxContraction
from ganglion.compiler.cpu.products.column_gemm import ColumnProductText
from ganglion.compiler.cpu.products.gemm import Contraction
from ganglion.compiler.cpu.products.packed_gemm import PackedContraction
from ganglion.compiler.cpu.products.packing import (
    PackedKind,
    Rounding,
    packed_buffers,
    packed_epilogue,
    packed_kind,
    packed_values,
    parametrized,
)
from ganglion.compiler.cpu.products.row_gemm import RowProductText
from ganglion.compiler.cpu.products.small_gemm import (
    ProductKind,
    ProductText,
    Sizes,
    is_small,
    kind_of,
    told_buffers,
)
from ganglion.compiler.cpu.scan_scatter import emit_pool_back, emit_scan, emit_scatter
from ganglion.compiler.cpu.sparse import BitContraction, NonzeroLists, emit_bits
from ganglion.compiler.cpu.text import Parameter
from ganglion.compiler.cpu.time_loop import emit_time_loop
from ganglion.compiler.cpu.tuning import CPU
from ganglion.compiler.cpu.winograd import Counts, Weights
from ganglion.compiler.cpu.winograd_conv import Conv, Grads, Outputs, Points
from ganglion.compiler.ir.graph import is_short
from ganglion.compiler.plan.host_call import HostCall
from ganglion.compiler.plan.kernels import (
    Apply,
    Buffer,
    Contract,
    Expr,
    Index,
    Indirect,
    Kernel,
    Literal,
    Load,
    Loop,
    Shape,
    Shuffled,
    Uniform,
    View,
)
from ganglion.compiler.plan.plan import Plan
from ganglion.compiler.plan.scan_scatter import PoolBack, Scan, Scatter
from ganglion.compiler.plan.time_loop import TimeLoop
from ganglion.compiler.plan.winograd import (
    Tiled,
    WinogradConv,
    WinogradGrads,
    WinogradKernel,
    WinogradOutputs,
    WinogradPoints,
    WinogradSpread,
    WinogradWeights,
)
from ganglion.system.records import record

Key = tuple[Any, ...]


@record(guarded=True)
class LoopTemplate:
    """A loop whose sizes are parameters."""

    kernel: Loop
    facts: Facts
    parameters: int
    buffers: Sequence[Buffer]  # in the order of the forms that share it


@record
class Form:
    """A kernel as its key, with its own buffers and parameters."""

    key: Key | None  # None if there is none
    buffers: Sequence[Buffer]  # in the order in which the key numbers them
    values: tuple[int, ...]  # of the parameters
    kernel: Kernel

    def template(self) -> Kernel | LoopTemplate | ProductKind | PackedKind:
        """Return the template to be emitted, a function of the key."""
        if self.key is None or self.key[0] == "constant":
            return self.kernel
        if self.key[0] in ("product", "packed"):
            return self.key[1]
        return _Reader(self.key).template

    def value(self, number: int) -> int:
        """Return a number, or the value of a parameter."""
        return self.values[number.number] if isinstance(number, Parameter) else number


def form_of(kernel: Kernel) -> Form:
    """Return the form of a kernel."""
    if isinstance(kernel, Loop) and _is_general(kernel):
        writer = _Writer(kernel)
        return Form(writer.key, writer.buffers, tuple(writer.values), kernel)
    if isinstance(kernel, Contract) and is_small(kernel):
        kind, operands = kind_of(kernel)
        form = Form(("product", kind), operands, Sizes.of(kernel).values(), kernel)
        return _with_epilogue(form, kernel.epilogue)
    if isinstance(kernel, Contract) and kernel.packed and not kernel.nonzeros:
        word: Key = ("packed", packed_kind(kernel))
        form = Form(word, packed_buffers(kernel), packed_values(kernel), kernel)
        return _with_epilogue(form, packed_epilogue(kernel))
    digest, buffers = cache.digest_of(kernel)
    key = ("constant", digest) if digest is not None else None
    return Form(key, buffers, parameter_values(kernel), kernel)


def parameter_values(kernel: Kernel) -> tuple[int, ...]:
    """Return the parameters of a function by `emit_kernel`, behind its buffers."""
    return Counts.of(kernel) if isinstance(kernel, Tiled) else ()


def _with_epilogue(form: Form, epilogue: Loop | None) -> Form:
    """Return the form of a product with its epilogue, whose parameters come last."""
    if epilogue is None or form.key is None:
        return form
    word, kind = form.key
    writer = _Writer(epilogue, form.buffers, form.values)
    key = (word, kind._replace(epilogue=writer.key))
    return replace(form, key=key, buffers=writer.buffers, values=tuple(writer.values))


def _is_general(kernel: Loop) -> bool:
    """Return whether a loop is emitted from a template, with sizes as parameters.

    It is if its vectorized axis is long, so that the remainder behind complete vectors
    costs little, or if the loop is too small for a specialized text to pay.
    """
    across = kernel.reduced and suits_lanes(kernel)
    vectors = (kernel.outer if across else kernel.shape)[-1:]
    is_long = len(kernel.shape) < 2 or min(vectors) >= CPU.long_axis
    suits = is_long or kernel.cost < CPU.small_loop
    return suits and not any(map(fails_at_zero, kernel.every_expr))


# ---- a loop as a key -----------------------------------------------------------------

_ARITHMETIC = {"add", "subtract", "multiply", "divide"}
_LARGEST_POWER = 99  # of two, whose inverse is exact: divisors become factors


class _Writer:
    """Writes the key of a loop, and collects its buffers and parameters.

    Those of an epilogue follow those of its product, which include its sizes.
    """

    def __init__(
        self,
        kernel: Loop,
        buffers: Sequence[Buffer] = (),
        values: Sequence[int] = (),
    ) -> None:
        self.buffers, self.values = list(buffers), list(values)
        self._numbers = {buffer: number for number, buffer in enumerate(buffers)}
        self._is_epilogue = bool(buffers)
        self._strides: dict[tuple[int, int], Parameter] = {}
        self._views: dict[tuple[Buffer, Shape, int], Key] = {}
        facts = FACTS if self._is_epilogue else Facts.of(kernel)
        self._prefetched = facts.prefetched
        shape = (0,) * len(kernel.shape) if buffers else self._sizes(kernel)
        words = self._expressions(kernel)
        targets = tuple(self._view(view) for _, view in kernel.outputs)
        types = tuple(buffer.dtype for buffer in self.buffers)
        how = (kernel.reduced, kernel.how, kernel.adds)
        count = len(self.values)
        self.key = ("loop", shape, words, targets, types, how, facts[:3], count)

    def _parameter(self, value: int) -> Parameter:
        self.values.append(value)
        return Parameter(len(self.values) - 1)

    def _sizes(self, kernel: Loop) -> Shape:
        """Return the shape with parameters for sizes, except of short axes.

        A short first axis is a parameter, too, if threads share it.
        """
        shared = len(kernel.outer) > 1 or not kernel.reduced
        least = (2 if shared else CPU.least_parameter, CPU.least_parameter)
        return tuple(
            [
                size if size < least[axis > 0] else self._parameter(size)
                for axis, size in enumerate(kernel.shape)
            ]
        )

    def _number(self, number: int) -> int:
        return number if number in (0, 1) else self._parameter(number)

    def _steps(self, strides: Shape) -> Shape:
        """Return strides with parameters, shared by equal strides of the same axis.

        Of an epilogue, only the last stride is constant, so that the text does not
        depend on the product's axes.
        """
        if self._is_epilogue:
            return (*map(self._parameter, strides[:-1]), strides[-1])
        return tuple(
            [
                stride if stride in (0, 1) else self._stride(axis, stride)
                for axis, stride in enumerate(strides)
            ]
        )

    def _stride(self, axis: int, stride: int) -> Parameter:
        parameter = self._strides.get((axis, stride))
        if parameter is None:
            parameter = self._strides[axis, stride] = self._parameter(stride)
        return parameter

    def _buffer(self, buffer: Buffer) -> int:
        number = self._numbers.get(buffer)
        if number is None:
            number = self._numbers[buffer] = len(self.buffers)
            self.buffers.append(buffer)
        return number

    def _view(self, view: View) -> Key:
        buffer, strides, offset = identity = view.buffer, view.strides, view.offset
        words = self._views.get(identity)
        if words is None:
            number, steps = self._buffer(buffer), self._steps(strides)
            distance = self._prefetched.get(view, 0) if self._prefetched else 0
            words = number, steps, self._number(offset), self._number(distance)
            self._views[identity] = words
        return words

    def _expressions(self, kernel: Loop) -> Key:
        """Write expressions in postorder, with operands by number."""
        numbers: dict[Expr, Any] = {}
        words: list[Key] = []
        for expr in kernel.every_expr:
            if type(expr) is Literal:  # written where it is used
                numbers[expr] = ("literal", expr.dtype, _text(expr))
                continue
            numbers[expr] = len(words)
            if type(expr) is Load:
                words.append(("load", expr.dtype, self._view(expr.view)))
            elif type(expr) is Apply:
                words.append(self._apply(expr, [numbers[arg] for arg in expr.args]))
            else:
                words.append(self._leaf(expr, numbers))
        return (tuple(words), tuple([numbers[expr] for expr, _ in kernel.outputs]))

    def _apply(self, expr: Apply, args: list[Any]) -> Key:
        op = expr.op
        if op in _ARITHMETIC:
            for position, word in enumerate(args):
                if type(word) is int:
                    continue
                arg = expr.args[position]
                assert isinstance(arg, Literal)
                if _may_vary(arg, op):
                    value = arg.value
                    if op == "divide" and position == 1 and _is_power_of_two(value):
                        op, value = "multiply", 1 / value  # with the same bits
                    word = self._parameter(_word(value, arg.dtype))
                    args[position] = ("parameter", arg.dtype, word)
        return ("apply", expr.dtype, op, tuple(args))

    def _leaf(self, expr: Expr, numbers: dict[Expr, Any]) -> Key:
        if isinstance(expr, Index):
            steps, offset = self._steps(expr.strides), self._number(expr.offset)
            return ("index", expr.dtype, steps, offset)
        if isinstance(expr, Indirect):
            table, row = self._buffer(expr.table), numbers[expr.row]
            sizes = self._number(expr.rows), self._number(expr.row_size)
            steps, offset = self._steps(expr.within), self._number(expr.offset)
            return ("indirect", expr.dtype, table, row, *sizes, steps, offset)
        if isinstance(expr, Uniform):
            state, element = self._buffer(expr.state), numbers[expr.element]
            return ("uniform", expr.dtype, state, element)
        assert isinstance(expr, Shuffled)
        state, position = self._buffer(expr.state), numbers[expr.position]
        return ("shuffled", expr.dtype, state, position, self._number(expr.rows))


def _may_vary(literal: Literal, op: str) -> bool:
    """Return whether a literal can be a parameter: its value changes no instruction."""
    value, kind = literal.value, literal.dtype.kind
    if value in (-1, 0, 1) or is_short(literal.dtype):
        return False
    return math.isfinite(value) if kind == "f" else kind in "iu" and op != "divide"


def _is_power_of_two(value: float) -> bool:
    mantissa, exponent = math.frexp(value)
    return abs(mantissa) == 0.5 and abs(exponent) < _LARGEST_POWER


def _word(value: float, dtype: np.dtype) -> int:
    """Return a number's bytes as the low bytes of a word."""
    raw = np.array(value, dtype).tobytes().ljust(8, b"\0")
    return int.from_bytes(raw, "little", signed=True)


def _text(literal: Literal) -> str:
    """Return a number as text, which distinguishes 0.0 from -0.0."""
    kind = {"b": bool, "i": int, "u": int}.get(literal.dtype.kind, float)
    return repr(kind(literal.value))


# ---- a key as a loop -----------------------------------------------------------------


class _Reader:
    """Builds a loop from a key, with buffers that have a type but no size.

    An epilogue is given the buffers of its product, which it may read.
    """

    def __init__(self, key: Key, given: Sequence[Buffer] = ()) -> None:
        _, shape, (words, roots), targets, types, how, facts, count = key
        transposes, is_narrow, fits_vector = facts
        self._buffers = [Buffer(f"b{n}", (), t, "arena") for n, t in enumerate(types)]
        self._buffers[: len(given)] = given
        self._prefetched: dict[View, int] = {}
        self._exprs: list[Expr] = []
        for word in words:
            self._exprs.append(self._expression(*word))
        exprs = map(self._operand, roots)
        outputs = tuple(zip(exprs, map(self._view, targets), strict=True))
        self.template = LoopTemplate(
            Loop("loop", shape, outputs, *how),
            Facts(transposes, is_narrow, fits_vector, self._prefetched),
            count,
            self._buffers,
        )

    def _view(self, words: Key) -> View:
        number, steps, offset, distance = words
        view = View(self._buffers[number], steps, offset)
        if distance != 0:
            self._prefetched[view] = distance
        return view

    def _operand(self, word: Any) -> Expr:
        if isinstance(word, int):
            return self._exprs[word]
        kind, dtype, value = word
        return Literal(dtype, value if kind == "parameter" else _constant(value, dtype))

    def _expression(self, kind: str, dtype: np.dtype, *words: Any) -> Expr:
        if kind == "apply":
            op, args = words
            return Apply(dtype, op, tuple(map(self._operand, args)))
        if kind == "load":
            return Load(dtype, self._view(*words))
        if kind == "index":
            return Index(dtype, *words)
        buffer, operand, *others = words
        kinds: dict[str, Callable[..., Expr]]
        kinds = {"indirect": Indirect, "uniform": Uniform, "shuffled": Shuffled}
        row = self._operand(operand)
        return kinds[kind](dtype, self._buffers[buffer], row, *others)


def _constant(text: str, dtype: np.dtype) -> float:
    if dtype.kind == "b":
        return text == "True"
    return int(text) if dtype.kind in "iu" else float(text)


# ---- texts ---------------------------------------------------------------------------

EMITTERS: dict[type[Kernel], Callable[[Any], Emitted]] = {
    Loop: lambda k: LoopText(k).emit(),
    Contract: lambda k: _contraction(k).emit(),
    PoolBack: emit_pool_back,
    Scan: emit_scan,
    Scatter: emit_scatter,
    HostCall: emit_host_call,
    Nonzeros: lambda k: NonzeroLists(k).emit(),
    NonzeroBits: emit_bits,
    TimeLoop: lambda k: emit_time_loop(k, emit_kernel),
    WinogradWeights: lambda k: Weights().emit(k),
    WinogradConv: lambda k: Conv(k).emit(),
    WinogradSpread: lambda k: Conv(k).emit(),
    WinogradGrads: lambda k: Grads(k).emit(),
    WinogradPoints: lambda k: Points(k).emit(),
    WinogradOutputs: lambda k: Outputs(k).emit(),
    WinogradKernel: lambda k: Weights().emit_back(k),
}


def _contraction(
    kernel: Contract,
) -> Contraction | BitContraction | PackedContraction:
    if kernel.packed:
        return PackedContraction.of(kernel)
    return BitContraction(kernel) if kernel.bits else Contraction(kernel)


@record
class Record:
    """A call of a step: a function by its hash, its arguments, and its parallelism.

    Arguments are the addresses of buffers, followed by the values of parameters.
    """

    function: str
    buffers: tuple[Buffer, ...]
    parallel: int
    grain: int
    parameters: tuple[int, ...] = ()

    @property
    def grains(self) -> int:
        """The number of grains, the last of which may be smaller."""
        return -(-self.parallel // self.grain)


def emit_plan(plan: Plan) -> tuple[dict[str, str], list[Record]]:
    """Return every function's module by its hash, and the calls of a step in order."""
    modules: dict[str, str] = {}
    records = []
    for kernel in plan.kernels:
        form = form_of(kernel)
        signature, module = emit_form(form)
        modules[signature.name] = module
        records.append(signature.called(form))
    return modules, records


@record(guarded=True)
class Signature:
    """How a function is called for a form."""

    name: str
    buffers: tuple[int, ...]  # numbers of the form's buffers
    parallel: int  # this and the grain may be parameters
    grain: int

    def called(self, form: Form) -> Record:
        """Return the call of a kernel of this form."""
        buffers = tuple([form.buffers[number] for number in self.buffers])
        parallel, grain = form.value(self.parallel), form.value(self.grain)
        return Record(self.name, buffers, parallel, grain, form.values)


def emit_form(form: Form) -> tuple[Signature, str]:
    """Return the signature of a form's function, and its module."""
    template = form.template()
    if isinstance(template, LoopTemplate):
        loop = LoopText(template.kernel, template.facts, Emitter(template.parameters))
        emitted, buffers = loop.emit(), template.buffers
    elif isinstance(template, ProductKind):
        buffers, epilogue, count = _operands(template, told_buffers(template))
        emitted = _text_of(template)(template, buffers, epilogue, count).emit()
    elif isinstance(template, PackedKind):
        kernel, grid, fewest = parametrized(template)
        buffers, epilogue, count = _operands(template, packed_buffers(kernel))
        kernel, count = replace(kernel, epilogue=epilogue), max(count, fewest)
        is_amx = template.rounding is Rounding.AMX
        packed = AmxContraction if is_amx else PackedContraction
        emitted = packed(
            kernel, grid, template.is_long, count, template.rounding
        ).emit()
    else:
        emitted, buffers = emit_kernel(template), form.buffers
        _check_buffers(template, emitted)
    name = "k" + hashlib.sha256(emitted.text.encode()).hexdigest()[:24]
    numbers = {buffer: number for number, buffer in enumerate(buffers)}
    passed = tuple(numbers[buffer] for buffer in emitted.buffers)
    signature = Signature(name, passed, emitted.parallel, emitted.grain)
    return signature, _module(name, emitted)


def _text_of(kind: ProductKind) -> type[ProductText]:
    """Return what emits the text of a kind of small contractions."""
    if kind.dotted:
        return ColumnProductText
    return RowProductText if kind.streams else ProductText


def _operands(
    kind: ProductKind | PackedKind, operands: Sequence[Buffer]
) -> tuple[Sequence[Buffer], Loop | None, int]:
    """Return a product's buffers, its epilogue, and the number of its parameters."""
    if kind.epilogue is None:
        return operands, None, 0
    template = _Reader(kind.epilogue, operands).template
    return template.buffers, template.kernel, template.parameters


def emit_kernel(kernel: Kernel) -> Emitted:
    """Return the text of a kernel."""
    return EMITTERS[type(kernel)](kernel)


def _check_buffers(kernel: Kernel, emitted: Emitted) -> None:
    """Check that code touches only buffers that its kernel declares, for barriers."""
    declared = {buffer.key for buffer in (*kernel.reads(), *kernel.writes())}
    touched = (b for b in emitted.buffers if b.kind != "constant")
    if hidden := [buffer for buffer in touched if buffer.key not in declared]:
        raise AssertionError(f"{kernel.name} does not declare {hidden}")


_END_OF_MODULE = "attributes #0 = { nounwind }\n!0 = !{}\n"


def _module(name: str, emitted: Emitted) -> str:
    text = emitted.text.replace("define void @kernel(", f"define void @{name}(", 1)
    declared, helpers = sorted(emitted.declared), sorted(emitted.helpers)
    return "\n".join([*declared, text, *helpers, _END_OF_MODULE])
