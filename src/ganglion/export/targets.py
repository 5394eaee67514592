"""The machines that code can be exported for, and LLVM IR compiled for them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from ganglion.compiler.cpu import jit


@dataclass(frozen=True)
class Machine:
    """A target as LLVM names it, and what its registers hold."""

    name: str
    triple: str
    cpu: str
    features: str = ""
    accumulators: int = 6  # vectors of 16 float32 that fit beside the operands
    neighbours: int = 4  # pixels of a depthwise convolution computed together
    pointer: int = 64  # bits
    fuses: bool = True  # multiplications with additions, in one instruction
    relocation: str = "pic"
    abi: str = ""


WASM = Machine(
    "wasm", "wasm32-unknown-unknown", "generic", "+simd128,+bulk-memory,+sign-ext",
    accumulators=3, neighbours=2, pointer=32, fuses=False, relocation="static",
)  # fmt: skip
_LINUX = "unknown-linux-gnu"


def _cortex(name: str) -> Machine:
    triple = "thumbv7em-none-eabihf"
    return Machine(
        name, triple, name, accumulators=1, neighbours=1, pointer=32,
        relocation="static",
    )  # fmt: skip


MACHINES = {
    machine.name: machine
    for machine in (
        Machine("x86-64-avx2", f"x86_64-{_LINUX}", "x86-64-v3"),
        Machine(
            "x86-64-avx512", f"x86_64-{_LINUX}", "x86-64-v4", "-prefer-256-bit", 28, 7
        ),
        Machine("aarch64-linux", f"aarch64-{_LINUX}", "generic"),
        Machine("aarch64-macos", "arm64-apple-macosx11.0.0", "apple-m1"),
        Machine(
            "riscv64", f"riscv64-{_LINUX}", "generic-rv64", "+m,+a,+f,+d,+c",
            accumulators=1, neighbours=1, abi="lp64d",
        ),
        _cortex("cortex-m4"),
        _cortex("cortex-m7"),
    )
}  # fmt: skip


def machine_of(name: str | None) -> Machine:
    """Return a machine by name; without a name, this machine."""
    if name is None or name == "native":
        return _this_machine()
    if name not in MACHINES:
        known = ", ".join(["native", *MACHINES])
        raise ValueError(f"There is no target {name!r}; choose {known}.")
    return MACHINES[name]


@cache
def _this_machine() -> Machine:
    import llvmlite.binding as llvm

    target = jit.host()
    wide = "+avx512f" in target.features or target.cpu == "x86-64-v4"
    return Machine(
        "native",
        llvm.get_default_triple(),
        target.cpu,
        target.features,
        accumulators=28 if wide else 6,
        neighbours=7 if wide else 4,
    )


def is_this_system(machine: Machine) -> bool:
    """Return whether a shared library of a target can be linked for this system."""
    host, target = (
        _kind(triple) for triple in (_this_machine().triple, machine.triple)
    )
    return host == target


def _kind(triple: str) -> tuple[str, str]:
    """Return the processor and the system of a triple.

    >>> _kind("arm64-apple-macosx11.0.0"), _kind("x86_64-pc-linux-gnu")
    (('aarch64', 'macos'), ('x86_64', 'linux'))
    """
    processor = triple.partition("-")[0].replace("arm64", "aarch64")
    systems = {"linux": "linux", "apple": "macos", "windows": "windows"}
    return processor, next((s for key, s in systems.items() if key in triple), "none")


def object_code(text: str, machine: Machine) -> bytes:
    """Compile a module of LLVM IR for a machine."""
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = _target_machine(llvm, machine)
    with (
        llvm.create_context() as context,
        llvm.parse_assembly(text, context) as module,
    ):
        module.triple = machine.triple
        module.data_layout = str(target.target_data)
        module.verify()
        options = llvm.create_pipeline_tuning_options(speed_level=2)
        passes = llvm.create_new_module_pass_manager()
        passes.add_instruction_combine_pass()
        passes.add_simplify_cfg_pass()
        passes.run(module, llvm.create_pass_builder(target, options))
        return bytes(target.emit_object(module))


def _target_machine(llvm: Any, machine: Machine) -> Any:
    return llvm.Target.from_triple(machine.triple).create_target_machine(
        cpu=machine.cpu,
        features=machine.features,
        opt=3,
        reloc=machine.relocation,
        codemodel="small",
        abiname=machine.abi,
    )
