"""A recipe's step as text: its graph, its plan, its kernels and their assembly."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ganglion import config
from ganglion.compiler.cpu import emit, jit
from ganglion.compiler.cpu.pipeline import build
from ganglion.compiler.cuda import driver, prelude, printer
from ganglion.compiler.cuda import emit as cuda_emit
from ganglion.compiler.cuda import pipeline as cuda_pipeline
from ganglion.compiler.ir.program import Program
from ganglion.recipes import Recipe
from ganglion.recipes import build as build_model
from ganglion.training.data_adapters import Table


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
    return model._step_cache.traced(step, rows, signature).program


def text_of(program: Program, form: str, backend: str = "cpu") -> str:
    """Return a program as its "graph", "plan", "source" or "asm" for a backend."""
    if form == "graph":
        return str(program.graph)
    if backend == "cuda":
        return _cuda_text(program, form)
    plan = build(program)
    if form == "plan":
        return str(plan)
    modules, _ = emit.emit(plan)
    if form == "source":
        return "\n".join(modules.values())
    return jit.assembly(modules.values(), jit.host())


def _cuda_text(program: Program, form: str) -> str:
    """Return the launches, the CUDA C text or the PTX; none of them needs a GPU."""
    here = driver.missing() is None
    capability = driver.driver().capability if here else cuda_emit.Target().capability
    target = cuda_emit.Target(capability, config.precision())
    plan = cuda_pipeline.build(program)
    made = cuda_emit.emit(plan, target)
    if form == "plan":
        return printer.show(plan, made, target)
    text = prelude.source(made.functions.values())
    if form == "source":
        commented = "\n".join(f"// {line}" for line in _launches(made, target))
        return f"{text}\n{commented}"
    try:
        return driver.compile_source(text, f"sm_{capability}", "ptx").decode()
    except ImportError as error:
        raise RuntimeError(
            f"PTX is made by NVRTC, which is not here ({error}): "
            f"{driver.INSTALL}. --plan and --source need nothing."
        ) from None


def _launches(made: cuda_emit.Emission, target: cuda_emit.Target) -> Iterator[str]:
    """Yield the launches of a step: blocks, shared memory, and the arrays they see."""
    yield (
        f"launches for sm_{target.capability}, {target.products}: {len(made.every)} in "
        f"every step, {len(made.once)} before them all, {len(made.first)} and "
        f"{len(made.last)} at the ends of a run; {made.arena:,} bytes for what is "
        "computed within a step"
    )
    for when in ("once", "first", "every", "last"):
        for number, call in enumerate(getattr(made, when)):
            seen = ", ".join(f"{one.kind} {one.name}" for one in call.buffers)
            yield (
                f"  {when} {number:3} {call.function}: {call.blocks} blocks, "
                f"{call.shared:,} bytes shared; {seen}"
            )
