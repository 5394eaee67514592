"""A recipe's step as text: its graph, its plan, its kernels in LLVM IR and assembly."""

from __future__ import annotations

import numpy as np

from ganglion.backends import cpu_emit, cpu_machine
from ganglion.backends.base import Program
from ganglion.data import Table
from ganglion.plan.build import build
from ganglion.recipes import Recipe
from ganglion.recipes import build as build_model
from ganglion.runner import batch_of


def program_of(recipe: Recipe, step: str, batch_size: int | None = None) -> Program:
    """Return the program of a recipe's step: "train", "test" or "predict"."""
    size = batch_size or recipe.batch_size
    target = (recipe.classes,) if recipe.one_hot else ()
    rows = Table(
        np.zeros((size, *recipe.input_shape), "uint8"),
        np.zeros((size, *target), "float32" if recipe.one_hot else "int32"),
    )
    signature = rows.signature(size, size, recipe.shuffle and step == "train")
    model = build_model(recipe)
    return model._runner.traced(step, batch_of(rows), signature).program


def text_of(program: Program, form: str) -> str:
    """Return a program as its "graph", "plan", "source" or "asm"."""
    if form == "graph":
        return str(program.graph)
    plan = build(program)
    if form == "plan":
        return str(plan)
    modules, _ = cpu_emit.emit(plan)
    if form == "source":
        return "\n".join(modules.values())
    return cpu_machine.assembly(modules.values(), cpu_machine.host())
