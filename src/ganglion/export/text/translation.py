"""`routines` translated to C and to LLVM IR, from the subset of Python they use."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ganglion.export.text import routines

NUMBER = "int"
_POINTERS = ("Bytes", "Ints", "Longs", "Source", "Texts", "Word", "Numbers")
_OPERATORS = {
    ast.Add: ("+", "add"),
    ast.Sub: ("-", "sub"),
    ast.Mult: ("*", "mul"),
    ast.BitAnd: ("&", "and"),
    ast.BitOr: ("|", "or"),
    ast.BitXor: ("^", "xor"),
    ast.LShift: ("<<", "shl"),
    ast.RShift: (">>", "lshr"),
}
_COMPARISONS = {
    ast.Eq: ("==", "eq"),
    ast.NotEq: ("!=", "ne"),
    ast.Lt: ("<", "ult"),
    ast.LtE: ("<=", "ule"),
    ast.Gt: (">", "ugt"),
    ast.GtE: (">=", "uge"),
}


@dataclass(frozen=True)
class Routine:
    """A function of `routines`: its parameters and their types, and its statements."""

    name: str
    parameters: dict[str, str]
    body: tuple[ast.stmt, ...]
    gives: bool  # a number

    @property
    def is_formula(self) -> bool:
        """Whether it is a single expression."""
        return len(self.body) == 1 and isinstance(self.body[0], ast.Return)

    def calls(self) -> list[str]:
        """Return the names of the functions that it calls."""
        nodes = itertools.chain.from_iterable(map(ast.walk, self.body))
        return [_name(node.func) for node in nodes if isinstance(node, ast.Call)]

    def variables(self) -> dict[str, str]:
        """Return the variables that it assigns, and their types."""
        types: dict[str, str] = {}
        for node in itertools.chain.from_iterable(map(ast.walk, self.body)):
            if isinstance(node, ast.AnnAssign):
                types[_name(node.target)] = _name(node.annotation)
            elif isinstance(node, (ast.Assign, ast.AugAssign)):
                target = (
                    node.targets[0] if isinstance(node, ast.Assign) else node.target
                )
                if isinstance(target, ast.Name):
                    types.setdefault(target.id, NUMBER)
        return types


@cache
def _all() -> dict[str, Routine]:
    tree = ast.parse(Path(routines.__file__).read_text(encoding="utf-8"))
    table = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            kinds = {a.arg: _name(a.annotation) for a in node.args.args}
            has_text = isinstance(node.body[0], ast.Expr) and isinstance(
                node.body[0].value, ast.Constant
            )
            body = tuple(node.body[has_text:])
            gives = not isinstance(node.returns, ast.Constant)
            table[node.name] = Routine(node.name, kinds, body, gives)
    return table


def routine(name: str) -> Routine:
    """Return a function of `routines`."""
    return _all()[name]


def needed(names: Iterable[str]) -> list[Routine]:
    """Return functions and everything they call, callees first."""
    ordered: dict[str, Routine] = {}

    def visit(name: str) -> None:
        if name not in ordered:
            for called in routine(name).calls():
                visit(called)
            ordered[name] = routine(name)

    for name in names:
        visit(name)
    return list(ordered.values())


def _name(node: ast.expr | None) -> str:
    assert isinstance(node, ast.Name), node and ast.dump(node)
    return node.id


def _constant(name: str) -> int:
    value = getattr(routines, name)
    assert isinstance(value, int)
    return value


# ---- C -------------------------------------------------------------------------------

C_TYPES = {
    NUMBER: "uint64_t ",
    "Bytes": "const uint8_t *",
    "Ints": "const int32_t *",
    "Longs": "const int64_t *",
    "Texts": "const char *const *",
    "Word": "uint8_t *",
    "Numbers": "int64_t *",
}


def as_c(names: Iterable[str], prefix: str, source: str = "int64_t") -> Iterator[str]:
    """Yield the lines of some routines in C.

    Args:
        names: Of the routines.
        prefix: The beginning of the functions' names.
        source: The C type of what `Source` points to.
    """
    for each in needed(names):
        yield from _CText(each, prefix, source).lines()


class _CText:
    def __init__(self, routine: Routine, prefix: str, source: str) -> None:
        self._routine, self._prefix, self._source = routine, prefix, source
        self._kinds = routine.parameters | routine.variables()

    def lines(self) -> Iterator[str]:
        routine = self._routine
        types = C_TYPES | {"Source": f"const {self._source} *"}
        passed = ", ".join(
            f"{types[kind]}{n}" for n, kind in routine.parameters.items()
        )
        result = "uint64_t" if routine.gives else "void"
        yield f"static {result} {self._prefix}_{routine.name}({passed}) {{"
        for name, kind in routine.variables().items():
            if name not in routine.parameters:
                yield f"  {types[kind]}{name}{' = 0' if kind == NUMBER else ''};"
        yield from self._block(routine.body, "  ")
        yield "}"
        yield ""

    def _block(self, body: Sequence[ast.stmt], indent: str) -> Iterator[str]:
        for statement in body:
            yield from self._statement(statement, indent)

    def _statement(self, node: ast.stmt, indent: str) -> Iterator[str]:
        match node:
            case ast.Assign(targets=[target], value=value):
                yield f"{indent}{self._assigned(target)} = {self._cast(target, value)};"
            case ast.AugAssign(target=target, op=op, value=value):
                symbol = _OPERATORS[type(op)][0]
                yield f"{indent}{_name(target)} {symbol}= {self._text(value)};"
            case ast.AnnAssign(target=target, value=ast.Subscript() as value):
                text = f"{_name(value.value)}[{self._text(value.slice)}]"
                yield f"{indent}{_name(target)} = (const uint8_t *){text};"
            case ast.While(test=test, body=body):
                yield f"{indent}while ({self._text(test)}) {{"
                yield from self._block(body, indent + "  ")
                yield f"{indent}}}"
            case ast.If(test=test, body=body, orelse=rest):
                yield f"{indent}if ({self._text(test)}) {{"
                yield from self._block(body, indent + "  ")
                if rest:
                    yield f"{indent}}} else {{"
                    yield from self._block(rest, indent + "  ")
                yield f"{indent}}}"
            case ast.Return(value=ast.expr() as value):
                yield f"{indent}return {self._text(value)};"
            case _:
                raise AssertionError(ast.dump(node))

    def _assigned(self, target: ast.expr) -> str:
        if isinstance(target, ast.Subscript):
            return f"{_name(target.value)}[{self._text(target.slice)}]"
        return _name(target)

    def _cast(self, target: ast.expr, value: ast.expr) -> str:
        if not isinstance(target, ast.Subscript):
            return self._text(value)
        kind = "uint8_t" if self._kinds[_name(target.value)] == "Word" else "int64_t"
        return f"({kind})({self._text(value)})"

    def _text(self, node: ast.expr) -> str:
        match node:
            case ast.Constant(value=int(number)):
                return f"{number}ull"
            case ast.Name(id=name):
                return name if name in self._kinds else f"{_constant(name)}ull"
            case ast.BinOp(left=left, op=op, right=right):
                symbol = _OPERATORS[type(op)][0]
                return f"({self._text(left)} {symbol} {self._text(right)})"
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                symbol = _COMPARISONS[type(op)][0]
                return f"({self._text(left)} {symbol} {self._text(right)})"
            case ast.BoolOp(op=ast.And(), values=values):
                return " && ".join(map(self._text, values))
            case ast.Subscript(value=value, slice=index):
                text = f"{_name(value)}[{self._text(index)}]"
                is_float = self._source in ("float", "double")
                if self._kinds[_name(value)] == "Source" and is_float:
                    # What no integer represents becomes the smallest, as on x86.
                    fits = f"{text} >= -0x1p63 && {text} < 0x1p63"
                    return f"(uint64_t)({fits} ? (int64_t){text} : INT64_MIN)"
                return f"(uint64_t){text}"
            case ast.Call(func=function, args=args):
                passed = ", ".join(map(self._text, args))
                return f"{self._prefix}_{_name(function)}({passed})"
            case _:
                raise AssertionError(ast.dump(node))


# ---- LLVM IR -------------------------------------------------------------------------

_ELEMENTS = {
    "Bytes": "i8",
    "Word": "i8",
    "Ints": "i32",
    "Longs": "i64",
    "Numbers": "i64",
    "Texts": "ptr",
}


def as_llvm(
    names: Iterable[str], source: str = "i64", signed: bool = True
) -> list[str]:
    """Return some routines as functions of LLVM IR.

    Args:
        names: Of the routines.
        source: The LLVM type of what `Source` points to.
        signed: Whether integers there have a sign.
    """
    wanted = [each for each in needed(names) if not each.is_formula]
    return ["\n".join(_LlvmText(each, source, signed).lines()) for each in wanted]


class _LlvmText:
    """A routine; its variables are on the stack until LLVM moves them to registers."""

    def __init__(self, routine: Routine, source: str, signed: bool) -> None:
        self._routine, self._signed = routine, signed
        self._elements = _ELEMENTS | {"Source": source}
        self._kinds = routine.parameters | routine.variables()
        self._counter = itertools.count()
        self._lines: list[str] = []
        self._bound: dict[str, str] = {}  # parameters of a formula, as registers

    def lines(self) -> list[str]:
        routine = self._routine
        passed = [f"{_llvm(kind)} %{n}.in" for n, kind in routine.parameters.items()]
        result = "i64" if routine.gives else "void"
        name = f"@text_{routine.name}"
        self._do(f"define internal {result} {name}({', '.join(passed)}) #0 {{")
        for variable, kind in self._kinds.items():
            self._do(f"  %{variable}.at = alloca {_llvm(kind)}")
        for variable, kind in routine.parameters.items():
            self._do(f"  store {_llvm(kind)} %{variable}.in, ptr %{variable}.at")
        self._block(routine.body)
        self._do("  ret void" if not routine.gives else "  unreachable")
        self._do("}")
        return self._lines

    def _do(self, line: str) -> None:
        self._lines.append(line)

    def _new(self, text: str) -> str:
        register = f"%r{next(self._counter)}"
        self._do(f"  {register} = {text}")
        return register

    def _label(self) -> str:
        return f"b{next(self._counter)}"

    def _begin(self, label: str) -> None:
        self._do(f"{label}:")

    def _block(self, body: Sequence[ast.stmt]) -> None:
        for statement in body:
            self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign(targets=[ast.Subscript() as target], value=value):
                self._store(target, self._value(value))
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                self._do(f"  store i64 {self._value(value)}, ptr %{name}.at")
            case ast.AugAssign(target=ast.Name(id=name) as target, op=op, value=value):
                value = ast.BinOp(ast.Name(name), op, value)
                self._do(f"  store i64 {self._value(value)}, ptr %{name}.at")
            case ast.AnnAssign(
                target=ast.Name(id=name), value=ast.Subscript() as value
            ):
                place = self._place(value)
                text = self._new(f"load ptr, ptr {place}")
                self._do(f"  store ptr {text}, ptr %{name}.at")
            case ast.While(test=test, body=body):
                head, inside, behind = (self._label() for _ in range(3))
                self._do(f"  br label %{head}")
                self._begin(head)
                self._branch(test, inside, behind)
                self._begin(inside)
                self._block(body)
                self._do(f"  br label %{head}")
                self._begin(behind)
            case ast.If(test=test, body=body, orelse=rest):
                yes, no, behind = (self._label() for _ in range(3))
                self._branch(test, yes, no)
                for label, part in ((yes, body), (no, rest)):
                    self._begin(label)
                    self._block(part)
                    self._do(f"  br label %{behind}")
                self._begin(behind)
            case ast.Return(value=ast.expr() as value):
                self._do(f"  ret i64 {self._value(value)}")
                self._begin(self._label())  # what follows is never reached
            case _:
                raise AssertionError(ast.dump(node))

    def _branch(self, test: ast.expr, yes: str, no: str) -> None:
        """Branch to one of two labels; operands after an `and` may be skipped."""
        parts = test.values if isinstance(test, ast.BoolOp) else [test]
        for number, part in enumerate(parts):
            value = self._value(part)
            holds = self._new(f"icmp ne i64 {value}, 0")
            last = number == len(parts) - 1
            then = yes if last else self._label()
            self._do(f"  br i1 {holds}, label %{then}, label %{no}")
            if not last:
                self._begin(then)

    def _place(self, node: ast.Subscript) -> str:
        name = _name(node.value)
        base = self._pointer(name)
        index = self._value(node.slice)
        element = self._elements[self._kinds[name]]
        return self._new(f"getelementptr {element}, ptr {base}, i64 {index}")

    def _pointer(self, name: str) -> str:
        return self._bound.get(name) or self._new(f"load ptr, ptr %{name}.at")

    def _store(self, target: ast.Subscript, value: str) -> None:
        place = self._place(target)
        kind = self._elements[self._kinds[_name(target.value)]]
        if kind != "i64":
            value = self._new(f"trunc i64 {value} to {kind}")
        self._do(f"  store {kind} {value}, ptr {place}")

    def _load(self, node: ast.Subscript) -> str:
        kind = self._kinds[_name(node.value)]
        element = self._elements[kind]
        value = self._new(f"load {element}, ptr {self._place(node)}")
        if element in ("float", "double"):
            short = "f32" if element == "float" else "f64"
            function = f"@llvm.fptosi.sat.i64.{short}"
            return self._new(f"call i64 {function}({element} {value})")
        if element == "i64":
            return value
        is_signed = self._signed if kind == "Source" else element != "i8"
        return self._new(f"{'sext' if is_signed else 'zext'} {element} {value} to i64")

    def _value(self, node: ast.expr) -> str:
        match node:
            case ast.Constant(value=int(number)):
                return i64(number)
            case ast.Name(id=name) if name in self._bound:
                return self._bound[name]
            case ast.Name(id=name) if name in self._kinds:
                return self._new(f"load i64, ptr %{name}.at")
            case ast.Name(id=name):
                return i64(_constant(name))
            case ast.BinOp(left=left, op=op, right=right):
                a, b = self._value(left), self._value(right)
                return self._new(f"{_OPERATORS[type(op)][1]} i64 {a}, {b}")
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                a, b = self._value(left), self._value(right)
                holds = self._new(f"icmp {_COMPARISONS[type(op)][1]} i64 {a}, {b}")
                return self._new(f"zext i1 {holds} to i64")
            case ast.Subscript():
                return self._load(node)
            case ast.Call(func=ast.Name(id=name), args=args):
                return self._call(routine(name), args)
            case _:
                raise AssertionError(ast.dump(node))

    def _call(self, called: Routine, args: Sequence[ast.expr]) -> str:
        kinds = called.parameters
        values = [
            self._value(arg) if kind == NUMBER else self._pointer(_name(arg))
            for arg, kind in zip(args, kinds.values(), strict=True)
        ]
        if called.is_formula:
            return self._inlined(called, values)
        passed = [
            f"{_llvm(k)} {v}" for k, v in zip(kinds.values(), values, strict=True)
        ]
        return self._new(f"call i64 @text_{called.name}({', '.join(passed)})")

    def _inlined(self, called: Routine, values: Sequence[str]) -> str:
        outer = self._bound
        self._bound = dict(zip(called.parameters, values, strict=True))
        (statement,) = called.body
        assert isinstance(statement, ast.Return)
        assert statement.value is not None
        result = self._value(statement.value)
        self._bound = outer
        return result


def _llvm(kind: str) -> str:
    assert kind == NUMBER or kind in _POINTERS
    return "i64" if kind == NUMBER else "ptr"


def i64(number: int) -> str:
    """Return a number of 64 bits as LLVM writes it."""
    return str(number - (1 << 64) if number >= 1 << 63 else number)
