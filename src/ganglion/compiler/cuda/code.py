"""Programs as machine code: emitted, compiled, loaded, and cached in the process.

A set of models is often followed by a similar set: the next seeds, the next trials.
Their steps are the same program, traced once (`training/sharing.py`). So the code of
the most recent programs stays loaded; their memory on the device does not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

from ganglion import config
from ganglion.compiler import cache
from ganglion.compiler.cuda.driver import Driver, OutOfMemory
from ganglion.compiler.cuda.emit import Emission, emit_program
from ganglion.compiler.cuda.memory import Memory
from ganglion.compiler.cuda.prelude import source
from ganglion.compiler.ir.graph import Program
from ganglion.system import terminal

BUNDLE_SIZE, BUNDLES_PER_CORE = 4, 3  # functions that are compiled together
MAX_LOADED = 8  # programs


class LoadedCode:
    """The functions of a program, loaded for as long as this object lives."""

    def __init__(self, program: Program, on: Memory, models: int) -> None:
        self.program, self._memory = program, on
        spec = replace(on.driver.spec, precision=config.precision())
        if spec.products != spec.precision:
            terminal.tell_once(
                f"{on.driver.name} has no {spec.precision}: products are "
                f"{spec.products}."
            )
        self.emission = emit_program(program, spec, models)
        self._modules, self.functions = _load(self.emission, on)

    def __del__(self) -> None:
        if modules := getattr(self, "_modules", None):
            self._memory.discard(partial(self._memory.unload, [], modules))

    @classmethod
    def cached(cls, program: Program, on: Memory, models: int) -> LoadedCode:
        """Return the code of a program, from a least-recently-used cache."""
        key = (id(program), models, config.precision())
        with on.lock:
            code = on.code_cache.pop(key, None)  # which refers to the program: its id
        if code is None:  # is not reused
            code = cls(program, on, models)
        with on.lock:
            on.code_cache[key] = code
            while len(on.code_cache) > MAX_LOADED:
                on.code_cache.pop(next(iter(on.code_cache)))
        return code


def bundles_of(functions: dict[str, str], cores: int) -> list[list[str]]:
    """Return bundles of functions, by name, of similar length in all.

    Every core gets several bundles, because the length of a text does not predict how
    long it takes to compile. Without cores to share the work, there is a single bundle.

    >>> bundles_of({name: "x" * len(name) for name in ("a", "bb", "ccc", "d", "ee")}, 1)
    [['ccc'], ['bb', 'd'], ['ee', 'a']]
    """
    names = sorted(functions, key=lambda name: -len(functions[name]))
    if not cores:
        return [names]
    by_cores = min(BUNDLES_PER_CORE * cores, len(names))
    count = max(-(-len(names) // BUNDLE_SIZE), by_cores)
    bundles: list[list[str]] = [[] for _ in range(count)]
    for number, name in enumerate(names):  # dealt back and forth, the longest first
        row, index = divmod(number, count)
        bundles[count - 1 - index if row % 2 else index].append(name)
    return bundles


def code_of(functions: Sequence[str], driver: Driver) -> bytes:
    """Return the machine code of functions, from the cache on disk if possible."""
    text = source(functions)
    key = hashlib.sha256(text.encode()).hexdigest()
    path = cache.path_of("cuda", driver.compiler(), key)
    code = cache.read(path)
    if code is None:
        code = driver.compile(text)
        cache.keep(path, code)
    return code


def _load(emission: Emission, memory: Memory) -> tuple[list[Any], dict[str, Any]]:
    """Compile all functions in parallel, and load them."""
    driver = memory.driver
    bundles = bundles_of(emission.functions, driver.cores)

    def compiled(bundle: list[str]) -> bytes:
        return code_of([emission.functions[name] for name in bundle], driver)

    with ThreadPoolExecutor(max(min(len(bundles), driver.cores), 1)) as pool:
        codes = list(pool.map(compiled, bundles))
    modules, loaded = list[Any](), dict[str, Any]()
    with memory.lock:
        for bundle, code in zip(bundles, codes, strict=True):
            try:
                module, functions = driver.load(code, bundle)
            except OutOfMemory:
                memory.unload([], modules)
                size, purpose = len(code), "a program's code"
                raise memory.refused(size, purpose, "its layers") from None
            modules.append(module)
            loaded |= functions
        if not emission.keeps_cache:
            for function in loaded.values():
                driver.prefer_shared(function)
        for call in emission.calls:
            if call.shared > 48 * 1024:
                driver.allow_shared(loaded[call.function], call.shared)
    return modules, loaded
