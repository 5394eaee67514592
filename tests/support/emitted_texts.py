"""Hashes of all that the compiler writes for known networks: an oracle for changes.

A change that is to leave the code alone leaves these numbers alone:

    python tests/support/emitted_texts.py > before.json
    python tests/support/emitted_texts.py before.json    # names what changed
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from cuda_networks import NETWORKS, step_of

from ganglion import config, recipes, variables
from ganglion.cli.dump import program_of
from ganglion.compiler.cpu import emit
from ganglion.compiler.cpu.pipeline import build
from ganglion.compiler.cuda import emit as cuda_emit
from ganglion.compiler.cuda.target import GpuSpec
from ganglion.compiler.ir.graph import Program


def programs() -> Iterator[tuple[str, Program]]:
    """Yield the steps of every recipe, and of the networks of the CUDA tests."""
    for name in recipes.published():
        for step in ("train", "test", "predict"):
            variables.reset_names()
            yield f"{name} {step}", program_of(recipes.get(name), step)
    config.set_backend("numpy")
    for name in NETWORKS:
        variables.reset_names()
        yield f"network {name}", step_of(name, 32, 16)[0]


def hashes(program: Program) -> dict[str, str]:
    """Return the hash of each form in which a program is written down."""
    plan = build(program)
    modules, calls = emit.emit_plan(plan)
    emission = cuda_emit.emit_program(program, GpuSpec())
    forms = {
        "graph": re.sub(r" *#.*", "", str(program.graph)),
        "plan": str(plan),
        "cpu": "\n".join(modules.values()) + str(calls),
        "cuda": "\n".join(emission.functions.values()) + str(list(emission.calls)),
        "cuda memory": f"{emission.schedule.arena} {emission.workspace_bytes} "
        f"{list(emission.schedule.offsets.values())}",
    }
    return {
        form: hashlib.sha256(text.encode()).hexdigest()[:16]
        for form, text in forms.items()
    }


def main() -> None:
    """Print the hashes, or what differs from a file of them."""
    now = {name: hashes(program) for name, program in programs()}
    if len(sys.argv) == 1:
        print(json.dumps(now, indent=1))
        return
    before = json.loads(Path(sys.argv[1]).read_text())
    changed = [
        f"{name}: {form}"
        for name, forms in now.items()
        for form, value in forms.items()
        if before.get(name, {}).get(form) != value
    ]
    print("\n".join(changed) or f"{len(now)} programs are written as before")
    sys.exit(bool(changed))


if __name__ == "__main__":
    main()
