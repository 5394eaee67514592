"""Imports go only downward, and `import ganglion` loads nothing heavy."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "ganglion"

# From the ground up. A module imports from its own floor and from those below; a folder
# counts as one module. `__init__` is `ganglion` itself.
FLOORS: list[tuple[str, str]] = [
    ("choices", "config forks lending files terminal budget"),
    ("compiler", "compiler"),
    (
        "API",
        "tree variables symbolic serialization lookup keras2 ops random activations "
        "initializers regularizers constraints layers losses metrics optimizers "
        "oldpaths missing mixed_precision dtype_policies",
    ),
    (
        "services",
        "trace data counts index_limits progress callbacks saving datasets utils "
        "compiled outputs runner machine summary feeding training_state turns "
        "augmenting images",
    ),
    (
        "models",
        "compiling training session models functional model_config model_ops "
        "model_reader",
    ),
    (
        "program",
        "__init__ __main__ cli cli_options dumping recipes backend rivals bench "
        "bench_augment "
        "bench_result "
        "bench_report race "
        "cli_race cli_report cli_train applications explain cli_cam cli_pretrained "
        "cli_again cli_images cli_predict image_judging image_recipes image_training",
    ),
]
FLOOR_OF = {
    name: number for number, (_, names) in enumerate(FLOORS) for name in names.split()
}
# The API says what to compute, and knows nothing of how it is done.
NOT_FOR_THE_API: set[str] = set()
HEAVY = ("llvmlite", "h5py", "rich", "typer", "PIL", "torch", "tensorflow", "keras",
         "jax", "matplotlib", "scipy", "ray")  # fmt: skip


class Import(NamedTuple):
    file: str
    line: int
    importer: str
    imported: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.importer} imports {self.imported}"


def modules() -> dict[str, list[Path]]:
    """Return the files of every module at the top of the package."""
    found: dict[str, list[Path]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        found.setdefault(name, []).append(path)
    return found


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
        names = [one.name for one in node.names]
    else:
        module = node.module or ""
        if node.level:
            parts = ["ganglion", *Path(file).parts[:-1]]
            parts = parts[: len(parts) - node.level + 1]
            module = ".".join([*parts, *([module] if module else [])])
        names = [module]
        if module == "ganglion":
            names = [f"ganglion.{one.name}" for one in node.names]
    for name in names:
        top, _, rest = name.partition(".")
        if top == "ganglion":
            first = rest.split(".")[0]
            yield first if first in known else "__init__"


def imports_of(text: str, importer: str, file: str, known: set[str]) -> list[Import]:
    found = []
    for node in statements(ast.parse(text)):
        for one in targets(node, file, known):
            if one != importer:
                found.append(Import(file, node.lineno, importer, one))
    return found


def all_imports() -> list[Import]:
    table = modules()
    return [
        one
        for name, paths in table.items()
        for path in paths
        for one in imports_of(
            path.read_text(), name, str(path.relative_to(PACKAGE)), set(table)
        )
    ]


def refusal(one: Import) -> str | None:
    """Say why an import breaks the order of floors, None if it keeps it."""
    if not {one.importer, one.imported} <= set(FLOOR_OF):
        return None  # `test_every_module_has_a_floor` names it
    mine, theirs = FLOOR_OF[one.importer], FLOOR_OF[one.imported]
    if theirs > mine:
        return (
            f"{one}, upward from the floor {FLOORS[mine][0]!r} to {FLOORS[theirs][0]!r}"
        )
    if FLOORS[mine][0] == "API" and one.imported in NOT_FOR_THE_API:
        return f"{one}: the API must not know {one.imported}"
    return None


def test_every_module_has_a_floor() -> None:
    missing = sorted(set(modules()) - set(FLOOR_OF))
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
from .. import config
from . import shaping
from ..lookup import resolve
def late():
    from ganglion import ops, __version__
    try:
        from ganglion.compiler.registry import Backend
    except ImportError:
        pass
"""
    known = {
        "config",
        "lookup",
        "ir",
        "models",
        "training",
        "cli",
        "ops",
        "backends",
        "__init__",
    }
    found = imports_of(text, "ir", "ir/x.py", known)
    assert [one.imported for one in found] == [
        "models",
        "cli",
        "config",
        "lookup",
        "ops",
        "__init__",
        "backends",
    ]
    assert "ir/x.py:2: ir imports models, upward from" in str(refusal(found[0]))
    up = Import("ops/x.py", 1, "ops", "backends")
    assert (
        refusal(up)
        == "ops/x.py:1: ops imports backends: the API must not know backends"
    )
    assert refusal(Import("models.py", 1, "models", "backends")) is None


@pytest.mark.parametrize("name", HEAVY)
def test_the_package_does_not_import_rivals_or_heavy_things_early(name: str) -> None:
    assert name not in loaded_by_import_ganglion()


_loaded: list[frozenset[str]] = []


def loaded_by_import_ganglion() -> frozenset[str]:
    if not _loaded:
        script = "import sys, ganglion; print(*{m.split('.')[0] for m in sys.modules})"
        made = subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONPATH": str(PACKAGE.parent), "PATH": ""},
        )
        _loaded.append(frozenset(made.stdout.split()))
    return _loaded[0]
