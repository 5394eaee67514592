"""Checks and times the CUDA backend where there is a GPU (python3 tests/support/...).

    device_cuda.py check    every op, layer, network and random graph
    device_cuda.py repeat    equal bits of each recipe, however it is run
    device_cuda.py time      milliseconds a step of each recipe
    device_cuda.py profile   microseconds of each launch of a step
    device_cuda.py once --batch 8 --recipes cifar10-cam
        two steps of a few images, for compute-sanitizer: racecheck ends within minutes
    cuda_use.py                 fit, callbacks, Ctrl-C, resume, no memory

Not collected by pytest: the tests without a GPU are in test_cuda*.py.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from concurrent.futures import ProcessPoolExecutor

import numpy as np
from folders import SOURCE, SUPPORT_PATHS

sys.path[:0] = [*SUPPORT_PATHS, str(SOURCE)]

from ganglion import config, optimizers, utils  # noqa: E402
from ganglion.compiler import reference  # noqa: E402
from ganglion.compiler.cuda import backend, code, emit  # noqa: E402
from ganglion.compiler.cuda import driver as cuda_driver  # noqa: E402
from ganglion.compiler.cuda.target import TUNING, GpuSpec  # noqa: E402
from ganglion.compiler.ir.table import OPS  # noqa: E402
from ganglion.compiler.plan.kernels import Contract, Loop  # noqa: E402

AWKWARD = (1, 2, 3, 7, 13, 17, 31, 33, 64, 130)
RECIPES = ("mnist-perceptron", "mnist-mlp", "mnist-cnn", "cifar10-cam")
# What products lose by rounding their operands.
TOLERANCE = {"tf32": 1e-2, "bf16": 1e-1, "float32": 2e-4, "float64": 1e-9}
# Where norms and ReLUs are stacked, rounding flips some of them: how far that may lead
# is seen by rounding what the reference starts from.
STACKED, LOOSE = ("stack", "network"), 4
ROUNDS = {"tf32": 2**-11, "bf16": 2**-8, "float32": 2**-23}


# ---- what is checked ---------------------------------------------------------------


def op_cases():
    from cpu_checks import op_program

    for name in sorted(OPS):
        for dtype in ("float32", "float64"):
            drawn, attrs = OPS[name].domain(np.random.default_rng(0))
            if dtype == "float32":
                drawn = [a.astype("f4") if a.dtype == np.float64 else a for a in drawn]
                attrs = {k: dtype if v == "float64" else v for k, v in attrs.items()}
            program, data = op_program(OPS[name], drawn, attrs)
            yield f"op {name}", dtype, program, data, {}, 1


def layer_cases():
    from cuda_cases import training_step
    from layer_cases import CASES

    for case in CASES:
        for floatx in ("float32", "float64"):
            config.set_floatx(floatx)
            program, data, state = training_step(case, floatx)
            yield f"layer {case.id}", floatx, program, data, state, 2
    config.set_floatx("float32")


def size_cases():
    from cuda_cases import convolution, loops, product

    for size in AWKWARD:
        for dtype in ("float32", "float64"):
            yield (f"product {size}", dtype, *product(size, dtype), 1)
            yield (f"loops {size}", dtype, *loops(size, dtype), 1)
    for rows in (1, 5, 17):
        for channels in (1, 3, 16, 17, 32):
            yield (
                f"conv {rows} {channels}",
                "float32",
                *convolution(rows, channels),
                2,
            )


def stack_cases():
    from cuda_cases import STACKS, Stack, training_step

    for number, stack in enumerate((*STACKS, Stack((16, 12, 12, 8), 32))):
        program, data, state = training_step(stack, "float32")
        yield f"stack {number}", "float32", program, data, state, 1


def network_cases():
    from cuda_networks import NETWORKS, step_of

    # Adam divides small gradients by themselves: what rounds would be all there is.
    for name in NETWORKS:
        program, data, state = step_of(name, 16, 16, optimizer=optimizers.SGD)
        yield f"network {name}", "float32", program, data, state, 1


def random_cases():
    from random_networks import step_of

    for seed in range(100):
        program, data, state = step_of(seed)
        yield f"network {seed}", "float32", program, data, state, 1


def graph_cases():
    from cuda_cases import random_graphs

    for number, (program, data) in enumerate(random_graphs(100)):
        yield f"graph {number}", "float64", program, data, {}, 1


def all_cases(kind):
    makers = {
        "ops": op_cases,
        "layers": layer_cases,
        "sizes": size_cases,
        "stacks": stack_cases,
        "networks": network_cases,
        "random": random_cases,
        "graphs": graph_cases,
    }
    config.set_backend("numpy")
    for name in kind.split(",") if kind else makers:
        utils.set_random_seed(0)  # of weights
        yield from makers[name]()


# ---- compiling ahead, in many processes --------------------------------------------


class Compiler:
    """A driver that only compiles: fills the cache."""

    def __init__(self, capability):
        self.capability = capability

    def compiler(self):
        return cuda_driver.compiler(self.capability)

    def compile(self, source):
        return cuda_driver.compile_source(source, f"sm_{self.capability}")


def compile_share(job):
    kind, precision, capability, share, shares = job
    warnings.simplefilter("ignore")
    target = GpuSpec(capability, precision)
    for number, (_, dtype, program, *_) in enumerate(all_cases(kind)):
        if number % shares == share and not (
            dtype == "float64" and precision != "tf32"
        ):
            emission = emit.emit_program(program, target)
            compile_functions(emission, Compiler(capability))
    return share


def compile_functions(emission, compiler):
    for bundle in code.bundles_of(emission.functions, os.cpu_count()):
        code.code_of([emission.functions[name] for name in bundle], compiler)


def compile_ahead(kind, precisions, capability, workers):
    started = time.time()
    jobs = [
        (kind, p, capability, s, workers) for p in precisions for s in range(workers)
    ]
    with ProcessPoolExecutor(workers) as pool:
        list(pool.map(compile_share, jobs))
    print(f"compiled ahead in {time.time() - started:.0f} s", flush=True)


# ---- checking ----------------------------------------------------------------------


def run(executable, data, state, steps):
    after = {name: array.copy() for name, array in state.items()}
    results = executable.run(data, after, steps)
    return {f"state {n}": a for n, a in after.items()} | results


def run_apart(executable, data, state, steps):
    """Do the same one step at a time; return the state."""
    after = {name: array.copy() for name, array in state.items()}
    for _ in range(steps):
        executable.run(data, after, 1)
    return {f"state {name}": array for name, array in after.items()}


def distances(actual, wanted):
    """Return how far each array is off, in units of the wanted one's size."""
    return {name: distance(actual[name], array) for name, array in wanted.items()}


def distance(ours, array):
    if array.dtype.kind != "f":
        return float(np.count_nonzero(ours != array))
    a, b = ours.astype("f8"), array.astype("f8")
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    gap = np.where(same, 0.0, np.abs(a - b))
    # NaN that is wanted nowhere, or lost, is infinitely far.
    gap = np.where(np.isnan(gap), np.inf, gap)
    size = np.sqrt(np.mean(np.square(b[np.isfinite(b)]))) if b.size else 0.0
    return float(np.max(gap, initial=0.0)) / max(float(size), 1e-2)


def swayed(compiled, data, state, steps, wanted, precision, draws=8):
    """Return how far the reference itself is off, if what it starts from is rounded."""
    far = dict.fromkeys(wanted, 0.0)
    for seed in range(draws):
        rng = np.random.default_rng(seed)
        moved = [
            {
                name: _moved(array, ROUNDS[precision], rng)
                for name, array in arrays.items()
            }
            for arrays in (data, state)
        ]
        actual = run(compiled, *moved, steps)
        for name, distance in distances(actual, wanted).items():
            far[name] = max(far[name], distance)
    return far


def _moved(array, size, rng):
    """Return an array whose numbers are larger or smaller by a part of themselves."""
    if array.dtype.kind != "f" or not array.ndim:
        return array
    return (array * (1 + size * rng.choice([-1, 1], array.shape))).astype(array.dtype)


def check(kind, precisions, workers):
    TUNING.fewest_summed, TUNING.summed_per_block = 1, 64  # what is small, too
    memory = backend.memory()
    compile_ahead(kind, precisions, memory.driver.spec.capability, workers)
    started, bad, count = time.time(), 0, 0
    worst = dict.fromkeys((*precisions, "float64"), (0.0, ""))
    for name, dtype, program, data, state, steps in all_cases(kind):
        data = {key: data[key] for key in program.data}
        meant = reference.compile(program)
        wanted = run(meant, data, state, steps)
        for precision in precisions:
            if dtype == "float64" and precision != precisions[0]:
                continue
            count += 1
            label = "float64" if dtype == "float64" else precision
            config.set_precision(precision)
            try:
                executable = backend.CompiledProgram(program, memory)
                executable.poisons = True
                results = run(executable, data, state, steps)
                again = run(executable, data, state, steps)
                apart = again | run_apart(executable, data, state, steps)
            except Exception as error:
                bad += 1
                print(f"FAILED {name} {label}: {type(error).__name__} {error}"[:400])
                if "CUDA_ERROR" in str(error):
                    raise
                continue
            allowed = dict.fromkeys(wanted, TOLERANCE[label])
            if name.split()[0] in STACKED:
                sway = swayed(meant, data, state, steps, wanted, precision)
                loose = 1 if precision == "float32" else LOOSE
                allowed = {n: max(loose * allowed[n], LOOSE * sway[n]) for n in wanted}
            off = distances(results, wanted)
            part, where = max((off[n] / allowed[n], n) for n in wanted)
            worst[label] = max(worst[label], (part, name))
            if not part <= 1:
                bad += 1
                print(f"WRONG {name} {label}: {off[where]:.2e} in {where}")
            for how, other in (("REPEATED", again), ("THE SAME IN PARTS", apart)):
                if any(
                    a.tobytes() != other[key].tobytes() for key, a in results.items()
                ):
                    bad += 1
                    print(f"NOT {how} {name} {label}")
    print(f"{count} checks, {bad} bad, {time.time() - started:.0f} s")
    for label, (part, name) in worst.items():
        print(f"  worst {label}: {part:.2f} of what is allowed ({name})")
    return bad


# ---- equal bits --------------------------------------------------------------------

RUNS = ((60,), (60,), (1, 2, 3, 4, 50), (30, 29, 1))  # steps at a time


def repeat(names, precisions):
    """Run some steps twice, and in other portions: all must end with the same bits."""
    bad = 0
    for name in names:
        for precision in precisions:
            executable, data, state, _, _ = compiled_recipe(name, precision)
            ends = []
            for portions in RUNS:
                after = {key: array.copy() for key, array in state.items()}
                for steps in portions:
                    executable.run(data, after, steps)
                ends.append({key: array.tobytes() for key, array in after.items()})
            apart = {key for end in ends for key in end if end[key] != ends[0][key]}
            bad += bool(apart)
            print(f"{name:16} {precision:8} {'differs: ' * bool(apart)}", sorted(apart))
    return bad


# ---- timing ------------------------------------------------------------------------


def training(name, rows=12_800, batch=None):
    """Return a training step, compiled, with random data and its state."""
    import cuda_networks

    from ganglion import recipes
    from ganglion.training.data_adapters import Table

    config.set_backend("numpy")
    if name in cuda_networks.NETWORKS:
        size = batch or 128
        return *cuda_networks.step_of(name, size, 32, rows), rows // size
    recipe = recipes.get(name)
    size = batch or recipe.batch_size
    x, y = recipes.noise(recipe, rows)
    table = Table(x, y)
    model = recipes.build(recipe)
    signature = table.signature(size, rows, recipe.shuffle)
    step = model._step_cache.traced("train", table, signature)
    state = {key: variable.array.copy() for key, variable in step.variables.items()}
    arrays = table.arrays()
    return (
        step.program,
        {key: arrays[key] for key in step.program.data},
        state,
        rows // size,
    )


def timed(driver, action, repeats=7):
    """Return the median milliseconds of an action on the device."""
    action()
    first, last = driver.stopwatch()
    results = []
    for _ in range(repeats):
        driver.mark(first)
        action()
        driver.mark(last)
        results.append(driver.milliseconds(first, last))
    return sorted(results)[len(results) // 2]


def compiled_recipe(name, precision, batch=None):
    rows = {"rows": 2 * batch} if batch else {}
    program, data, state, steps = training(name, batch=batch, **rows)
    config.set_precision(precision)
    started = time.time()
    executable = backend.CompiledProgram(program, backend.memory())
    seconds = time.time() - started
    return executable, data, state, steps, seconds


def time_recipes(names, precisions):
    driver = backend.memory().driver
    for name in names:
        for precision in precisions:
            executable, data, state, steps, seconds = compiled_recipe(name, precision)
            executable.run(data, state, steps)
            (binding,) = executable._bindings.values()
            ms = (
                timed(driver, lambda m=executable, p=binding, s=steps: m._launch(p, s))
                / steps
            )
            launches = len(executable.emission.every)
            print(
                f"{name:16} {precision:8} {ms * 1e3:9.1f} us/step {launches:4} launches"
                f"  compiled in {seconds:.1f} s",
                flush=True,
            )


def described(fused):
    kernel = fused.kernel
    text = kernel.name
    if isinstance(kernel, Loop):
        text += f"{list(kernel.outer)}"
        if kernel.reduced:
            text += f"<{list(kernel.shape[len(kernel.outer) :])}"
    if isinstance(kernel, Contract):
        groups = (kernel.batch, kernel.rows, kernel.columns, kernel.inner)
        text += " ".join("x".join(str(a.size) for a in g) or "1" for g in groups)
    return text + f"+{len(fused.epilogues)}" * bool(fused.epilogues)


def profile(names, precisions, repeats=20):
    driver = backend.memory().driver
    for name in names:
        for precision in precisions:
            executable, data, state, steps, _ = compiled_recipe(name, precision)
            executable.run(data, state, steps)
            (binding,) = executable._bindings.values()
            launches = executable.emission.schedule.every
            total = 0.0
            print(f"--- {name} {precision}")
            for number, call in enumerate(executable.emission.every):

                def many(m=executable, p=binding, c=call):
                    for _ in range(repeats):
                        m._launch_all(p, [c], 0)

                driver.begin_capture()
                many()
                graph = driver.end_capture()
                us = timed(driver, lambda g=graph: driver.replay(g), 3) / repeats * 1e3
                total += us
                partitions = (
                    launches[number].partitions if number < len(launches) else []
                )
                texts = [
                    " ; ".join(described(w) for w in partition.fused_kernels)
                    for partition in partitions
                ]
                text = " || ".join(texts)[:150]
                size = f"{call.blocks:5} blocks {call.shared // 1024:3} KB"
                print(f"{number:3} {us:7.1f} us {size}  {text}")
            print(f"    {total:.1f} us in all", flush=True)


def once(names, precisions, batch):
    """Run two steps without a graph, for profilers; a small batch for slow ones."""
    for name in names:
        for precision in precisions:
            executable, data, state, _, _ = compiled_recipe(name, precision, batch)
            executable.run(data, state, 2)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    known = ["check", "repeat", "time", "profile", "once"]
    parser.add_argument("what", nargs="+", choices=known)
    parser.add_argument(
        "--kind", default="", help="ops,layers,sizes,stacks,networks,random,graphs"
    )
    parser.add_argument("--recipes", default=",".join(RECIPES))
    parser.add_argument("--precisions", default="tf32,float32")
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--batch", type=int, help="images a step, for `once`")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    driver = backend.memory().driver
    print(driver.name, driver.spec.capability, f"numpy {np.__version__}", flush=True)
    precisions = tuple(arguments.precisions.split(","))
    bad = 0
    if "check" in arguments.what:
        bad = check(arguments.kind, precisions, arguments.workers)
    if "repeat" in arguments.what:
        bad += repeat(arguments.recipes.split(","), precisions)
    if "time" in arguments.what:
        time_recipes(arguments.recipes.split(","), precisions)
    if "profile" in arguments.what:
        profile(arguments.recipes.split(","), precisions)
    if "once" in arguments.what:
        once(arguments.recipes.split(","), precisions, arguments.batch)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
