"""JAX: pure functions, jitted; all steps in a single loop, with donated state."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ganglion.race.engines import (
    RivalTrainer,
    Task,
    Unavailable,
    averages,
    pixels,
    scaled,
    split,
    test_set,
    up_to_logits,
)
from ganglion.race.engines.jax_layers import (
    first_state,
    prediction,
    test_step,
    training_step,
)


def prepare(task: Task, form: str) -> JaxTrainer:
    """Write the recipe as a function; `form` names what is jitted."""
    set_up(task)
    return JaxTrainer(task, form)


def set_up(task: Task) -> None:
    """Enable float64 if asked for; refuse a device that JAX does not have."""
    import jax

    jax.config.update("jax_enable_x64", task.dtype == "float64")
    if task.device == "cuda" and task.precision == "float32":  # else JAX takes TF32
        jax.config.update("jax_default_matmul_precision", "highest")
    if task.device == "cuda" and jax.default_backend() != "gpu":
        raise Unavailable(
            f"JAX {jax.__version__} sees no GPU; pip install 'jax[cuda12]'"
        )


class JaxTrainer(RivalTrainer):
    """The state is (weights, slots, step); a step maps it to the next one."""

    def __init__(self, task: Task, form: str) -> None:
        import jax
        import jax.numpy as jnp

        layers, x = scaled(task)
        layers = up_to_logits(task.recipe, layers)
        self._task, self.batch_size = task, task.batch_size
        self._count = task.batches
        self._x: Any = jnp.asarray(x)
        self._y = jnp.asarray(task.y)
        self._test = [tuple(map(jnp.asarray, batch)) for batch in test_set(task)]
        self._state: Any = None
        self.reset()
        self._in_one, self._on_gpu = form == "scan", task.device == "cuda"
        advance = training_step(task, layers)
        take, size = partial(_take, advance), task.batch_size
        self._step = jax.jit(advance, donate_argnums=0)
        self._take = jax.jit(take, donate_argnums=(0, 1))
        # A GPU goes through a loop of known length without asking the processor.
        known = (4,) if self._on_gpu else ()
        self._loop = jax.jit(
            partial(_loop, take, size), static_argnums=known, donate_argnums=(0, 1)
        )
        self._scan = jax.jit(
            partial(_scan, advance, task), static_argnums=3, donate_argnums=0
        )
        self._judge = jax.jit(test_step(task, layers))
        self._outputs = jax.jit(prediction(task, layers))
        self._compiled: dict[int, Any] = {}
        self._batches: list[Any] = []
        self._losses: Any = [jnp.zeros(1)]

    def run(self, steps: int) -> float:
        import jax

        if self._in_one:  # another number of steps is compiled outside of the clock
            lengths = self._lengths(steps)
            data = (self._x, self._y)
            for length in set(lengths) - set(self._compiled):
                lowered = self._scan.lower(self._state, *data, length)
                self._compiled[length] = lowered.compile()
            started, losses = time.perf_counter(), []
            for length in lengths:
                self._state, chunk_losses = self._compiled[length](self._state, *data)
                losses.append(chunk_losses)
        else:
            batches = self._split()
            started, losses = time.perf_counter(), []
            for step in range(steps):
                batch = batches[step % self._count]
                self._state, (loss, _) = self._step(self._state, batch)
                losses.append(loss)
        self._losses = jax.block_until_ready(losses)
        jax.block_until_ready(self._state)
        return time.perf_counter() - started

    def _lengths(self, steps: int) -> list[int]:
        """Return loops for some steps; a GPU's wait in a queue, so an epoch each."""
        if not self._on_gpu:
            return [steps]
        epochs, rest = divmod(steps, self._count)
        return [self._count] * epochs + [1] * rest

    def _split(self) -> list[Any]:
        if not self._batches:
            size = self.batch_size
            starts = range(0, self._count * size, size)
            self._batches = [
                (self._x[at : at + size], self._y[at : at + size]) for at in starts
            ]
        return self._batches

    def loss(self) -> float:
        return float(np.mean(np.concatenate([np.ravel(loss) for loss in self._losses])))

    def weights(self) -> list[np.ndarray]:
        return [np.array(weight) for weight in self._state[0]]

    def epoch(self, order: np.ndarray) -> tuple[float, float]:
        """Train on these rows in this order: a loop in JAX, or a step at a time."""
        size, count = self.batch_size, len(order) // self.batch_size
        data, sums = (self._x, self._y), tuple(np.zeros(2, self._task.dtype))
        if self._in_one and count:
            rows = np.zeros(len(self._x), "int32")  # a fixed length: compiled once
            rows[: len(order)] = order
            self._state, sums = self._loop(self._state, sums, data, rows, count)
            parts = [order[count * size :]]
        else:
            parts = [order[at : at + size] for at in range(0, len(order), size)]
        for part in parts:
            if len(part):
                self._state, sums = self._take(self._state, sums, data, part)
        total, hits = map(float, sums)  # waits for all of it
        return total / len(order), hits / len(order)

    def warm_up(self, order: np.ndarray) -> None:
        """Compile everything; on a GPU, also the loop of an entire epoch."""
        super().warm_up(order)
        if self._on_gpu:
            self.epoch(order)
            self.reset()

    def test(self) -> tuple[float, float]:
        weights, _, step = self._state
        return averages(
            (*self._judge(weights, step, x, y), len(x)) for x, y in self._test
        )

    def in_batches(self, x: np.ndarray, size: int) -> list[Any]:
        import jax.numpy as jnp

        return [jnp.asarray(part) for part in split(pixels(self._task, x), size)]

    def predict(self, batches: list[Any]) -> np.ndarray:
        weights, _, step = self._state
        outputs = [self._outputs(weights, step, x) for x in batches]
        return np.concatenate(outputs)  # waits for all of them

    def feed(self, images: np.ndarray) -> None:
        import jax.numpy as jnp

        self._x = None  # the old ones need not be there at the same time
        self._x = jnp.array(images)

    def reset(self) -> None:
        self._state = first_state(self._task)


def _scan(
    advance: Callable[..., Any], task: Task, state: Any, x: Any, y: Any, steps: int
) -> Any:
    """Train on batches in their order, repeatedly; return the losses."""
    import jax

    split = (task.batches, task.batch_size)
    rows = task.batches * task.batch_size
    x, y = (array[:rows].reshape(*split, *array.shape[1:]) for array in (x, y))

    def body(state: Any, step: Any) -> Any:
        state, (loss, _) = advance(state, (x[step % len(x)], y[step % len(x)]))
        return state, loss

    return jax.lax.scan(body, state, jax.numpy.arange(steps))


def _take(
    advance: Callable[..., Any], state: Any, sums: Any, data: Any, rows: Any
) -> Any:
    """Gather a batch, train on it, and add to the sums of loss and hits."""
    state, (loss, hits) = advance(state, tuple(array[rows] for array in data))
    return state, (sums[0] + loss * len(rows), sums[1] + hits)


def _loop(
    take: Callable[..., Any],
    size: int,
    state: Any,
    sums: Any,
    data: Any,
    order: Any,
    count: Any,
) -> Any:
    """Train on the first batches of an order; their number is no part of the code."""
    import jax

    def body(at: Any, carried: Any) -> Any:
        return take(*carried, data, jax.lax.dynamic_slice(order, (at * size,), (size,)))

    return jax.lax.fori_loop(0, count, body, (state, sums))
