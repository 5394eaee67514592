"""A recipe's step as text: its graph, its plan, its kernels and their assembly."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ganglion import config
from ganglion.compiler.cpu import emit, jit
from ganglion.compiler.cpu.pipeline import PIPELINE, build
from ganglion.compiler.cuda import driver, printer
from ganglion.compiler.cuda import emit as cuda_emit
from ganglion.compiler.cuda import pipeline as cuda_pipeline
from ganglion.compiler.cuda.prelude import source
from ganglion.compiler.cuda.target import GpuSpec
from ganglion.compiler.ir.graph import Program
from ganglion.compiler.plan.plan import Plan
from ganglion.recipes import Recipe, noise
from ganglion.recipes import build as build_model
from ganglion.training.data_adapters import Table


def program_of(recipe: Recipe, step: str, batch_size: int | None = None) -> Program:
    """Return the program of a recipe's step: "train", "test" or "predict"."""
    size = batch_size or recipe.batch_size
    rows = Table(*noise(recipe, size))
    signature = rows.signature(size, size, recipe.shuffle and step == "train")
    model = build_model(recipe)
    return model._step_cache.traced(step, rows, signature).program


def pass_names(backend: str) -> list[str]:
    """Return the names of a backend's passes, in order."""
    cuda = backend == "cuda"
    pipeline = cuda_pipeline.pipeline(GpuSpec()) if cuda else PIPELINE
    return [step.name for step in pipeline.passes]


def text_of(
    program: Program, form: str, backend: str = "cpu", after: str | None = None
) -> str:
    """Return a program as its "graph", "plan", "source" or "asm" for a backend.

    Of the plan, that is the last stage, or the one `after` a pass of the backend.
    """
    if form == "graph":
        return str(program.graph)
    if backend == "cuda":
        return _cuda_text(program, form, after)
    if form == "plan":
        return _stage_text(build(program, after))
    modules, _ = emit.emit_plan(build(program))
    if form == "source":
        return "\n".join(modules.values())
    return jit.assembly(modules.values(), jit.host())


def _stage_text(stage: Any) -> str:
    if isinstance(stage, Program):
        return str(stage.graph)
    return str(stage) if isinstance(stage, Plan) else printer.show_stage(stage)


def _cuda_text(program: Program, form: str, after: str | None) -> str:
    """Return the launches, the CUDA C text or the PTX; none of them needs a GPU."""
    here = driver.unavailable_reason() is None
    spec = driver.driver().spec if here else GpuSpec()
    spec = replace(spec, precision=config.precision())
    if form == "plan" and after is not None:
        return _stage_text(cuda_pipeline.build(program, spec, after))
    emission = cuda_emit.emit_program(program, spec)
    if form == "plan":
        return printer.show(emission, spec)
    text = source(list(emission.functions.values()))
    if form == "source":
        commented = "\n".join(f"// {line}" for line in _launches(emission, spec))
        return f"{text}\n{commented}"
    try:
        return driver.compile_source(text, f"sm_{spec.capability}", "ptx").decode()
    except ImportError as error:
        raise RuntimeError(
            f"PTX is made by NVRTC, which is not here ({error}): "
            f"{driver.INSTALL}. --plan and --source need nothing."
        ) from None


def _launches(emission: cuda_emit.Emission, spec: GpuSpec) -> Iterator[str]:
    """Yield the launches of a step: blocks, shared memory, and the arrays they see."""
    yield (
        f"launches for sm_{spec.capability}, {spec.products}: {len(emission.every)} in "
        f"every step, {len(emission.once)} before them all, {len(emission.first)} and "
        f"{len(emission.last)} at the ends of a run; {emission.schedule.arena:,} bytes "
        "for what is computed within a step"
    )
    for when in ("once", "first", "every", "last"):
        for number, call in enumerate(getattr(emission, when)):
            seen = ", ".join(f"{buffer.kind} {buffer.name}" for buffer in call.buffers)
            yield (
                f"  {when} {number:3} {call.function}: {call.blocks} blocks, "
                f"{call.shared:,} bytes shared; {seen}"
            )
