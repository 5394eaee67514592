"""A step of the GAN of Keras' guide, in one compiled program, beside Keras' own.

    python tests/support/bench/gan_bench.py
    python tests/support/bench/gan_bench.py --threads 1 --forms ganglion,keras-function

Every form runs this same text, in a process of its own: Ganglion's stands in for
`keras` and `tensorflow`. The forms of Keras are `fit` as it comes (compiled by XLA
where Keras thinks that it can be), `fit` without XLA, the step alone in a function of
TensorFlow, and `fit` on PyTorch. They take turns; a row has the medians of a step, by
the clock and of all processors, and how many times as long as Ganglion's it takes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

FORMS = ("ganglion", "keras", "keras-no-xla", "keras-function", "keras-torch")
BATCH, LATENT = 64, 128
MOST_STEPS = 100  # of a turn


def generator(keras: Any) -> Any:
    """Return the guide's generator of 28 x 28 images."""
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((LATENT,)),
            layers.Dense(7 * 7 * 128),
            layers.LeakyReLU(negative_slope=0.2),
            layers.Reshape((7, 7, 128)),
            layers.Conv2DTranspose(128, 4, strides=2, padding="same"),
            layers.LeakyReLU(negative_slope=0.2),
            layers.Conv2DTranspose(128, 4, strides=2, padding="same"),
            layers.LeakyReLU(negative_slope=0.2),
            layers.Conv2D(1, 7, padding="same", activation="sigmoid"),
        ]
    )


def discriminator(keras: Any) -> Any:
    """Return the guide's discriminator."""
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            layers.Conv2D(64, 3, strides=2, padding="same"),
            layers.LeakyReLU(negative_slope=0.2),
            layers.Conv2D(128, 3, strides=2, padding="same"),
            layers.LeakyReLU(negative_slope=0.2),
            layers.GlobalMaxPooling2D(),
            layers.Dense(1),
        ]
    )


def update_by_tape(model: Any, optimizer: Any, loss: Callable[[], Any]) -> Any:
    """Train one of the two networks, as the guide for TensorFlow does."""
    import tensorflow as tf

    with tf.GradientTape() as tape:
        value = loss()
    gradients = tape.gradient(value, model.trainable_weights)
    optimizer.apply_gradients(zip(gradients, model.trainable_weights, strict=True))
    return value


def update_by_torch(model: Any, optimizer: Any, loss: Callable[[], Any]) -> Any:
    """Train one of the two networks, as the guide for PyTorch does."""
    import torch

    model.zero_grad()
    value = loss()
    value.backward()
    with torch.no_grad():
        weights = model.trainable_weights
        optimizer.apply([w.value.grad for w in weights], weights)
    return value


def gan(keras: Any, update: Callable[..., Any], jit_compile: Any) -> Any:
    """Return the compiled model, whose step trains both of its networks."""
    ops = keras.ops

    class GAN(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.discriminator = discriminator(keras)
            self.generator = generator(keras)
            self.d_optimizer = keras.optimizers.Adam(0.0003)
            self.g_optimizer = keras.optimizers.Adam(0.0003)
            self.loss_fn = keras.losses.BinaryCrossentropy(from_logits=True)
            self.d_loss_tracker = keras.metrics.Mean(name="d_loss")
            self.g_loss_tracker = keras.metrics.Mean(name="g_loss")
            self.seeds = keras.random.SeedGenerator(1337)
            self.built = True

        @property
        def metrics(self) -> list[Any]:
            return [self.d_loss_tracker, self.g_loss_tracker]

        def train_step(self, real: Any) -> dict[str, Any]:
            real = real[0] if isinstance(real, tuple) else real
            noise = keras.random.normal((BATCH, LATENT), seed=self.seeds)
            images = ops.concatenate([self.generator(noise), real])
            if update is update_by_torch:
                images = images.detach()
            is_made = ops.concatenate([ops.ones((BATCH, 1)), ops.zeros((BATCH, 1))])
            d_loss = update(
                self.discriminator,
                self.d_optimizer,
                lambda: self.loss_fn(is_made, self.discriminator(images)),
            )
            noise = keras.random.normal((BATCH, LATENT), seed=self.seeds)
            misled = ops.zeros((BATCH, 1))
            g_loss = update(
                self.generator,
                self.g_optimizer,
                lambda: self.loss_fn(misled, self.discriminator(self.generator(noise))),
            )
            self.d_loss_tracker.update_state(d_loss)
            self.g_loss_tracker.update_state(g_loss)
            return {m.name: m.result() for m in self.metrics}

    model = GAN()
    model.compile(jit_compile=jit_compile)
    return model


def steps(form: str, threads: int) -> Callable[[int], None]:
    """Return what takes so many steps in some form."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    os.environ["GANGLION_THREADS"] = str(threads)
    os.environ["KERAS_BACKEND"] = "torch" if form == "keras-torch" else "tensorflow"
    if form == "ganglion":
        sys.path.insert(0, str(Path(__file__).parents[3] / "src"))
        import ganglion

        ganglion.install_as_keras()
    import keras

    if form == "keras-torch":
        import torch

        torch.set_num_threads(threads)
    elif form != "ganglion":
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(threads)
    update = update_by_torch if form == "keras-torch" else update_by_tape
    is_plain = form in ("keras-no-xla", "keras-function")
    model = gan(keras, update, False if is_plain else "auto")
    rng = np.random.default_rng(0)
    images = rng.uniform(0.01, 1, (MOST_STEPS * BATCH, 28, 28, 1)).astype("float32")

    def by_fit(count: int) -> None:
        model.fit(images[: count * BATCH], batch_size=BATCH, verbose=0)

    if form != "keras-function":
        return by_fit
    step = tf.function(model.train_step)
    batch = tf.constant(images[:BATCH])

    def by_function(count: int) -> None:
        for _ in range(count):
            step(batch)["g_loss"].numpy()

    return by_function


def serve(form: str, threads: int, count: int) -> None:
    """Take some steps for every line that is read, and print how long they took."""
    take = steps(form, threads)
    take(3)
    print("ready", flush=True)
    for _ in sys.stdin:
        clock, processor = time.perf_counter(), time.process_time()
        take(count)
        took = time.perf_counter() - clock, time.process_time() - processor
        print(json.dumps([1000 * each / count for each in took]), flush=True)


class Worker:
    """A form in a process of its own, and the milliseconds of its steps."""

    def __init__(self, form: str, threads: int, count: int) -> None:
        self.form = form
        words = [sys.executable, __file__, "--serve", form]
        words += ["--threads", str(threads), "--steps", str(count)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._process = subprocess.Popen(words, text=True, **pipes)
        self._process.stdout.readline()
        self.clock: list[float] = []
        self.processor: list[float] = []

    def run(self) -> None:
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        clock, processor = json.loads(self._process.stdout.readline())
        self.clock.append(clock)
        self.processor.append(processor)

    def end(self) -> None:
        self._process.stdin.close()
        self._process.wait()


def measure(forms: list[str], threads: int, count: int, rounds: int) -> None:
    """Print a row a form; the first is what the others are compared with."""
    workers = [Worker(form, threads, count) for form in forms]
    for _ in range(rounds):
        for worker in workers:
            worker.run()
    for worker in workers:
        worker.end()
        ratios = [
            statistics.median(
                own / first for own, first in zip(owns, firsts, strict=True)
            )
            for owns, firsts in (
                (worker.clock, workers[0].clock),
                (worker.processor, workers[0].processor),
            )
        ]
        print(
            f"{worker.form:15} {statistics.median(worker.clock):7.1f} ms a step, "
            f"{statistics.median(worker.processor):7.1f} of processors; "
            f"{ratios[0]:5.2f} and {ratios[1]:5.2f} times {forms[0]}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--forms", default=",".join(FORMS))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--steps",
        type=int,
        default=10,
        choices=range(1, MOST_STEPS + 1),
        metavar="N",
        help="of a form's turn",
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--serve", choices=FORMS, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.serve:
        serve(chosen.serve, chosen.threads, chosen.steps)
    else:
        forms = chosen.forms.split(",")
        measure(forms, chosen.threads, chosen.steps, chosen.rounds)


if __name__ == "__main__":
    main()
