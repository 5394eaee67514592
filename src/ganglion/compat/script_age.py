"""The version of Keras that a script was written for, from its text alone.

Spellings that only Keras 2 had (`lr=`, `keras.layers.core`, `fit_generator`) mean Keras
2, names that came with Keras 3 (`keras.ops`, `KERAS_BACKEND`) mean Keras 3, and a
script without either is run as Keras 3.

>>> age = age_of_text("from keras.layers.core import Dense")
>>> age.keras, age.reason
(2, 'line 1: `keras.layers.core`')
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ganglion.compat.aliases import target_of
from ganglion.oldpaths import OLD_PATHS


def _words(text: str, prefix: str = "") -> frozenset[str]:
    return frozenset(prefix + word for word in text.split())


_OPTIMIZERS = _words("SGD RMSprop Adam Adamax Nadam Adagrad Adadelta Ftrl")
_OLD_METHODS = _words("fit_generator evaluate_generator predict_generator")
# Arguments of Keras 2 or 1, by the name of the called function; `*` matches any.
_OLD_ARGUMENTS = {
    **dict.fromkeys(_OPTIMIZERS, _words("lr decay schedule_decay")),
    "ReduceLROnPlateau": _words("epsilon"),
    "*": _words(
        "nb_epoch nb_filter nb_row nb_col border_mode subsample W_regularizer "
        "b_regularizer W_constraint b_constraint nb_val_samples samples_per_epoch "
        "dim_ordering inner_activation"
    ),
}
# What `keras.backend` still has in Keras 3; newer scripts ask `keras.config` for the
# order of the axes, which is why that counts as old.
_BACKEND_TODAY = _words(
    "backend clear_session epsilon floatx get_uid is_float_dtype is_int_dtype "
    "is_keras_tensor result_type set_epsilon set_floatx standardize_dtype"
)
_SINCE_KERAS3 = _words(
    "ops random config dtype_policies distribution tree quantizers KerasTensor "
    "Variable StatelessScope device",
    prefix="keras.",
)
_OLD_TENSORFLOW = _words(
    "Session placeholder compat.v1 python.keras", prefix="tensorflow."
)
_IN_KERAS3_TOO = ("preprocessing", "optimizers.legacy", "src", "_legacy")


class Age(NamedTuple):
    """A version of Keras, the reason, and whether it is the one in TensorFlow."""

    keras: int
    reason: str
    in_tensorflow: bool


class _Sign(NamedTuple):
    keras: int
    line: int
    spelling: str


def age_of(path: Path) -> Age:
    """Return the Keras that a script and the modules in its folder are written for."""
    signs: list[tuple[_Sign, str]] = []
    roots: set[str] = set()
    for file, tree in _with_modules_beside(path):
        reader = _Reader()
        reader.visit(tree)
        roots |= reader.roots
        where = "line" if file == path else f"{file.name}:"
        signs += [(sign, where) for sign in reader.signs]
    return _decided(signs, roots)


def age_of_text(text: str) -> Age:
    """Return the Keras that a Python text is written for."""
    reader = _Reader()
    reader.visit(ast.parse(text))
    return _decided([(sign, "line") for sign in reader.signs], reader.roots)


def _decided(signs: list[tuple[_Sign, str]], roots: set[str]) -> Age:
    in_tensorflow = "tensorflow" in roots and not roots & {"keras", "tf_keras"}
    for keras in (3, 2):
        for sign, where in signs:
            if sign.keras == keras:
                line = f"{where} {sign.line}".replace(": ", ":")
                return Age(keras, f"{line}: `{sign.spelling}`", in_tensorflow)
    return Age(3, "nothing in it is older", in_tensorflow)


def _with_modules_beside(path: Path) -> Iterator[tuple[Path, ast.Module]]:
    """Yield the script, and the files of its folder that it imports, each once."""
    waiting, seen = [path], {path}
    while waiting:
        file = waiting.pop(0)
        try:
            tree = ast.parse(file.read_bytes())
        except (SyntaxError, ValueError, OSError):
            continue  # Python reports it better when it runs the file
        yield file, tree
        for name in _imported(tree):
            beside = path.parent.joinpath(*name.split("."))
            for file in (beside.with_suffix(".py"), beside / "__init__.py"):
                if file not in seen and file.is_file():
                    seen.add(file)
                    waiting.append(file)


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


class _Reader(ast.NodeVisitor):
    """Collects the signs of a text, and the packages through which it imports Keras."""

    def __init__(self) -> None:
        self.signs: list[_Sign] = []
        self.roots: set[str] = set()
        self._names: dict[str, str] = {}  # the script's names for modules and objects

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            top = alias.name.partition(".")[0]
            self._names[alias.asname or top] = alias.name if alias.asname else top
            self._look_at(alias.name, node.lineno)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.level or node.module is None:
            return
        for alias in node.names:
            full = f"{node.module}.{alias.name}"
            self._names[alias.asname or alias.name] = full
            self._look_at(full, node.lineno)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        full = self._dotted(node)
        if full is not None:
            self._look_at(full, node.lineno)
        if node.attr in _OLD_METHODS:
            self.signs.append(_Sign(2, node.lineno, node.attr))
        if node.attr == "lr" and getattr(node.value, "attr", "") == "optimizer":
            self.signs.append(_Sign(2, node.lineno, "optimizer.lr"))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        called = self._dotted(node.func) or str(getattr(node.func, "attr", ""))
        if called == "pop" and getattr(node.func.value, "attr", "") == "layers":  # type: ignore[attr-defined]
            self.signs.append(_Sign(2, node.lineno, "model.layers.pop()"))
        name = called.rpartition(".")[2]
        old = _OLD_ARGUMENTS.get(name, frozenset()) | _OLD_ARGUMENTS["*"]
        for keyword in node.keywords:
            if keyword.arg in old:
                self.signs.append(_Sign(2, node.lineno, f"{name}({keyword.arg}=)"))
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if node.value == "KERAS_BACKEND":
            self.signs.append(_Sign(3, node.lineno, "KERAS_BACKEND"))

    def _dotted(self, node: ast.AST) -> str | None:
        """Return the full name of `layers.Dense`, None for other expressions."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self._names:
            return None
        return ".".join([self._names[node.id], *reversed(parts)])

    def _look_at(self, full: str, line: int) -> None:
        """Note the signs in the full name of a module or an object."""
        target = target_of(full)
        if target is None:
            return
        is_keras = not target.startswith("ganglion.compat.tensorflow")
        if is_keras:
            self.roots.add(full.partition(".")[0])
        for prefix in _prefixes(full):
            if prefix in _OLD_TENSORFLOW:
                self.signs.append(_Sign(2, line, prefix))
                return
        if is_keras and full.startswith("tf_keras"):
            self.signs.append(_Sign(2, line, "tf_keras"))
        if not is_keras:
            return
        for prefix in _prefixes(target):
            inner = prefix.removeprefix("ganglion.")
            spelling = f"keras.{inner}"
            if prefix in OLD_PATHS and not inner.startswith(_IN_KERAS3_TOO):
                self.signs.append(_Sign(2, line, spelling))
                return
            if spelling in _SINCE_KERAS3:
                self.signs.append(_Sign(3, line, spelling))
                return
            package, _, name = inner.rpartition(".")
            if package == "backend" and name not in _BACKEND_TODAY:
                self.signs.append(_Sign(2, line, spelling))
                return
            if spelling == "keras.layers.ThresholdedReLU":
                self.signs.append(_Sign(2, line, spelling))


def _prefixes(name: str) -> Iterator[str]:
    parts = name.split(".")
    for count in range(2, len(parts) + 1):
        yield ".".join(parts[:count])
