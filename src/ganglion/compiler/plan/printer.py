"""Print plans: a line per kernel, with what it reads, computes and writes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import fields

from ganglion.compiler.plan.kernels import (
    Apply,
    Contract,
    Expr,
    Index,
    Indirect,
    Kernel,
    Literal,
    Load,
    Loop,
    Shuffled,
    Uniform,
    View,
    walk,
)
from ganglion.compiler.plan.plan import Plan


def show(
    plan: Plan,
    title: str = "",
    before: Sequence[str] = (),
    after: Sequence[str] = (),
) -> str:
    """Return a plan as text; targets add texts before and after each kernel."""
    lines = [f"plan {plan.name}  {len(plan.kernels)} kernels{title}"]
    empty = [""] * len(plan.kernels)
    columns = (plan.kernels, before or empty, after or empty)
    for number, (kernel, start, end) in enumerate(zip(*columns, strict=True)):
        first, *more = kernel_text(kernel).split("\n")
        lines += [f"  {number:3} {start}{first}{end}", *more]
    return "\n".join(lines)


def kernel_text(kernel: Kernel) -> str:
    """Return a kernel as text, with further outputs and named values on more lines."""
    if isinstance(kernel, Contract) and kernel.epilogue:
        _, _, epilogue = kernel_text(kernel.epilogue).partition(": ")
        return f"{kernel.describe()}\n      then: {epilogue}"
    if not isinstance(kernel, Loop):
        return kernel.describe()
    sign = "+=" if kernel.adds else "="
    how = f"{kernel.how}{list(kernel.shape[-kernel.reduced :])} " * bool(kernel.reduced)
    texts = _Texts(kernel.exprs)
    bodies = [f"{_view(v)} {sign} {how}{texts.of(expr)}" for expr, v in kernel.outputs]
    text = f"for {list(kernel.outer)}: " + "\n      and: ".join(bodies)
    return "".join([text, *(f"\n      with: {named}" for named in texts.named)])


def _view(view: View) -> str:
    offset = f"+{view.offset}" if view.offset else ""
    return f"{view.buffer.name}@{list(view.strides)}{offset}"


class _Texts:
    """Expressions as text; common subexpressions are named and written once."""

    def __init__(self, exprs: Sequence[Expr]) -> None:
        self._numbers: dict[tuple[object, ...], int] = {}  # by structure
        self._number: dict[int, int] = {}  # by `id`: equal expressions share a number
        self._text: dict[int, str] = {}
        self.named: list[str] = []
        every = list(walk(*exprs))
        used = Counter[int]()
        for expr in every:
            below = tuple(self._number[id(child)] for child in expr.children)
            key = (*_own(expr), *below)
            new = key not in self._numbers
            number = self._number[id(expr)] = self._numbers.setdefault(
                key, len(self._numbers)
            )
            if new:
                used.update(below)
        used.update(self._number[id(expr)] for expr in exprs)
        for expr in every:
            number = self._number[id(expr)]
            if number not in self._text:
                self._text[number] = self._written(expr, used[number])

    def _written(self, expr: Expr, uses: int) -> str:
        below = [self._text[self._number[id(child)]] for child in expr.children]
        head = _head(expr)
        if not below:
            return head
        text = head.replace("...", ", ".join(below))
        if uses < 2 or not isinstance(expr, Apply):
            return text
        name = f"e{len(self.named) + 1}"
        self.named.append(f"{name} = {text}")
        return name

    def of(self, expr: Expr) -> str:
        """Return the text of an expression."""
        return self._text[self._number[id(expr)]]


def _own(expr: Expr) -> Iterator[str]:
    """Yield an expression's own fields, without its subexpressions."""
    yield type(expr).__name__
    for field in fields(expr):
        value = getattr(expr, field.name)
        below = value if isinstance(value, tuple) else (value,)
        if not any(isinstance(item, Expr) for item in below):
            yield repr(value)


def _head(expr: Expr) -> str:
    """Return an expression as text, with "..." for its operands."""
    if isinstance(expr, Load):
        return _view(expr.view)
    if isinstance(expr, Literal):
        return f"{expr.value:g}"
    if isinstance(expr, Index):
        return f"index{list(expr.strides)}"
    if isinstance(expr, Apply):
        return f"{expr.op}(...)"
    if isinstance(expr, Indirect):
        return f"{expr.table.name}[...]"
    if isinstance(expr, Uniform):
        return f"uniform({expr.state.name})"
    if isinstance(expr, Shuffled):
        return f"shuffled({expr.state.name}, ...)"
    return type(expr).__name__
