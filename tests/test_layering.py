"""Imports go only downward, and `import ganglion` loads nothing heavy."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from folders import PACKAGE, ROOT

# From the ground up: rooms, and files of the top, that import from their own floor and
# from those below. A file belongs to the longest name that fits, so that a room within
# a room, or a file that is below the rest of its room, may have a floor of its own.
FLOORS: list[tuple[str, str]] = [
    ("ground", "config dtypes files system pages compiler"),
    ("graph", "compiler.ir"),
    ("plan", "compiler.plan compiler.cache compiler.pipeline"),
    ("targets", "compiler.cpu compiler.cuda compiler.reference"),
    ("choice", "compiler.registry"),
    (
        "API",
        "tree tensors gradients variables symbolic serialization keras2 ops "
        "random activations initializers regularizers constraints layers losses "
        "metrics optimizers mixed_precision dtype_policies quantizers oldpaths compat "
        "operation scopes signal_windows legacy distribution hyperparameters",
    ),
    (
        "services",
        "progress callbacks saving datasets images utils visualization models.summary "
        "compat.image_generator compat.tensorflow.dtypes",
    ),
    ("training", "training"),
    ("models", "models distillation many wrappers export"),
    (
        "program",
        "__init__ __main__ cli recipes backend race applications explain serve "
        "compat.tensorflow compat.jax "
        "images.networks images.training many.sweep many.sweep_report",
    ),
]
FLOOR_OF = {
    name: number for number, (_, names) in enumerate(FLOORS) for name in names.split()
}
# The API says what to compute, and knows nothing of how it is done; one target knows
# nothing of the other.
NOT_FOR = {
    "API": ("compiler.plan", "compiler.cpu", "compiler.cuda", "compiler.reference"),
    "compiler.cpu": ("compiler.cuda",),
    "compiler.cuda": ("compiler.cpu",),
}
HEAVY = ("llvmlite", "h5py", "rich", "typer", "PIL", "torch", "tensorflow", "keras",
         "jax", "matplotlib", "scipy", "ray", "sklearn", "optuna",
         "pandas", "starlette", "uvicorn", "onnx")  # fmt: skip


class Import(NamedTuple):
    file: str
    line: int
    importer: str
    imported: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.importer} imports {self.imported}"


def modules() -> dict[str, Path]:
    """Return every file of the package by its dotted name, without `ganglion`."""
    return {
        _name(path.relative_to(PACKAGE)): path for path in sorted(PACKAGE.rglob("*.py"))
    }


def _name(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts) or "__init__"


def room(name: str) -> str | None:
    """Return the longest name of a floor that a module's name begins with."""
    parts = name.split(".")
    names = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next((name for name in names if name in FLOOR_OF), None)


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def statements(tree: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield every import, inside of functions too, but for those of type checkers."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield node
        elif is_type_checking(node):
            assert isinstance(node, ast.If)
            yield from statements(ast.Module(body=node.orelse, type_ignores=[]))
        else:
            yield from statements(node)


def targets(
    node: ast.Import | ast.ImportFrom, file: str, known: set[str]
) -> Iterator[str]:
    """Yield the modules of ours that an import names."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    else:
        module = node.module or ""
        if node.level:
            parts = ["ganglion", *Path(file).parts[:-1]]
            parts = parts[: len(parts) - node.level + 1]
            module = ".".join([*parts, *([module] if module else [])])
        names = [f"{module}.{alias.name}" for alias in node.names]
    for name in names:
        top, _, rest = name.partition(".")
        if top == "ganglion":
            parts = rest.split(".")
            tried = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
            yield next((name for name in tried if name in known), "__init__")


def imports_of(text: str, importer: str, file: str, known: set[str]) -> list[Import]:
    return [
        Import(file, node.lineno, importer, name)
        for node in statements(ast.parse(text))
        for name in targets(node, file, known)
        if name != importer
    ]


def all_imports() -> list[Import]:
    table = modules()
    return [
        imported
        for name, path in table.items()
        for imported in imports_of(
            path.read_text(), name, str(path.relative_to(PACKAGE)), set(table)
        )
    ]


def refusal(result: Import) -> str | None:
    """Say why an import breaks the order of floors, None if it keeps it."""
    importer, imported = room(result.importer), room(result.imported)
    if importer is None or imported is None:
        return None  # `test_every_module_has_a_floor` names it
    mine, theirs = FLOORS[FLOOR_OF[importer]][0], FLOORS[FLOOR_OF[imported]][0]
    if FLOOR_OF[imported] > FLOOR_OF[importer]:
        return f"{result}, upward from the floor {mine!r} to {theirs!r}"
    for name in (mine, importer):
        if imported in NOT_FOR.get(name, ()):
            return f"{result}: {name} must not know {imported}"
    return None


def test_every_module_has_a_floor() -> None:
    missing = [name for name in modules() if room(name) is None]
    assert not missing, f"say in FLOORS where these belong: {', '.join(missing)}"


def test_imports_go_only_downward() -> None:
    broken = [text for text in map(refusal, all_imports()) if text]
    assert not broken, "\n" + "\n".join(broken)


def test_the_reader_sees_imports_where_they_hide() -> None:
    text = """
import os, ganglion.models as m
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from ganglion.training.trainer import Trainer
else:
    from ganglion import cli
from ... import config
from . import pointwise
from ..plan.lowering import Lowering
def late():
    from ganglion import ops, __version__
    try:
        from ganglion.compiler.registry import Backend
    except ImportError:
        pass
"""
    imports = imports_of(text, "compiler.ir.x", "compiler/ir/x.py", set(modules()))
    assert [imported.imported for imported in imports] == [
        "models",
        "cli",
        "config",
        "compiler.ir.pointwise",
        "compiler.plan.lowering",
        "ops",
        "__init__",
        "compiler.registry",
    ]
    assert "x.py:2: compiler.ir.x imports models, upward from" in str(
        refusal(imports[0])
    )
    assert refusal(imports[3]) is None
    assert "upward from the floor 'graph' to 'plan'" in str(refusal(imports[4]))


def test_the_api_knows_no_backend_and_no_target_knows_another() -> None:
    up = Import("ops/x.py", 1, "ops.x", "compiler.cpu.emit")
    assert refusal(up) == (
        "ops/x.py:1: ops.x imports compiler.cpu.emit: API must not know compiler.cpu"
    )
    beside = Import("y.py", 1, "compiler.cuda.y", "compiler.cpu.emit")
    assert "compiler.cuda must not know compiler.cpu" in str(refusal(beside))
    assert refusal(Import("z.py", 1, "models.z", "compiler.cpu.emit")) is None


def rooms() -> list[str]:
    return sorted(
        str(path.parent.relative_to(PACKAGE)) for path in PACKAGE.rglob("__init__.py")
    )[1:]


@pytest.mark.parametrize("name", rooms())
def test_a_room_has_a_readme_a_place_on_the_map_and_few_files(name: str) -> None:
    lines = (PACKAGE / name / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 60 or name == "compiler"  # which has the glossary
    map_ = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert any(f"`{room}/`" in map_ for room in (name, name.split("/")[0]))
    assert len(list((PACKAGE / name).glob("*.py"))) <= 32


@pytest.mark.parametrize("name", HEAVY)
def test_the_package_does_not_import_rivals_or_heavy_things_early(name: str) -> None:
    assert name not in loaded_by_import_ganglion()


_loaded: list[frozenset[str]] = []


def loaded_by_import_ganglion() -> frozenset[str]:
    if not _loaded:
        script = "import sys, ganglion; print(*{m.split('.')[0] for m in sys.modules})"
        result = subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONPATH": str(PACKAGE.parent), "PATH": ""},
        )
        _loaded.append(frozenset(result.stdout.split()))
    return _loaded[0]
