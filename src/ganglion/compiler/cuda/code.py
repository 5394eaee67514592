"""Programs as loaded machine code: emitted, compiled, and kept for the next ones.

A set of models is often followed by one like it: the next seeds, the next trials. Their
steps are the same program, traced once (`training/sharing.py`). So the code of the last
programs stays loaded, without their memory on the device.
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

BUNDLE, BUNDLES_PER_CORE = 4, 3  # functions compiled as one; bundles of a core
MOST_KEPT = 8  # programs


class LoadedCode:
    """The functions of a program, on the device as long as somebody uses them."""

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
    def kept(cls, program: Program, on: Memory, models: int) -> LoadedCode:
        """Return the code of a program, that of an earlier call if it was loaded."""
        key = (id(program), models, config.precision())
        with on.lock:
            code = on.kept_code.pop(key, None)  # it keeps the program, and so its id
        if code is None:
            code = cls(program, on, models)
        with on.lock:
            on.kept_code[key] = code  # the last one used is the last to go
            while len(on.kept_code) > MOST_KEPT:
                on.kept_code.pop(next(iter(on.kept_code)))
        return code


def bundles_of(functions: dict[str, str], cores: int) -> list[list[str]]:
    """Return names of functions that are compiled together: each some long, some short.

    There are enough of them for all cores, in several turns: how long one takes cannot
    be told from its text. Without cores to share the work, it is all done at once.

    >>> bundles_of({name: "x" * len(name) for name in ("a", "bb", "ccc", "d", "ee")}, 1)
    [['ccc'], ['bb', 'd'], ['ee', 'a']]
    """
    names = sorted(functions, key=lambda name: -len(functions[name]))
    if not cores:
        return [names]
    count = max(-(-len(names) // BUNDLE), min(BUNDLES_PER_CORE * cores, len(names)))
    bundles: list[list[str]] = [[] for _ in range(count)]
    for number, name in enumerate(names):
        round_number, index = divmod(number, count)
        bundles[count - 1 - index if round_number % 2 else index].append(name)
    return bundles


def code_of(functions: Sequence[str], driver: Driver) -> bytes:
    """Return functions as machine code, from the cache where they are known."""
    text = source(functions)
    key = hashlib.sha256(text.encode()).hexdigest()
    path = cache.path_of("cuda", driver.compiler(), key)
    known = cache.read(path)
    if known is None:
        known = driver.compile(text)
        cache.keep(path, known)
    return known


def _load(emission: Emission, memory: Memory) -> tuple[list[Any], dict[str, Any]]:
    """Compile all functions, several at a time, and load them."""
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
