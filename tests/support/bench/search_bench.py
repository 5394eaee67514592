"""A search on Fashion-MNIST by Optuna: some trials together beside one at a time.

    python tests/support/bench/search_bench.py --trials 200 --batch 32,8,1

A trial is a network 784-units-10 with dropout, trained by AdamW; units, rate, dropout
and weight decay are searched by TPE, and the median of the others prunes a trial after
an epoch. Time, of the clock and of the processors, and the best accuracy on held-out
rows are told.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

import ganglion as keras
from ganglion import layers, many
from ganglion.datasets import fashion_mnist

SPACE = {
    "units": [64, 128, 256],
    "rate": many.uniform(1e-4, 3e-2, log=True),
    "dropout": many.uniform(0.0, 0.5),
    "decay": many.uniform(1e-6, 1e-2, log=True),
}


def build(units: int, rate: float, dropout: float, decay: float) -> Any:
    hidden = [layers.Dense(units, activation="relu"), layers.Dropout(dropout)]
    model = keras.Sequential([keras.Input((784,)), *hidden, layers.Dense(10)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = keras.optimizers.AdamW(rate, weight_decay=decay)
    model.compile(optimizer, loss, metrics=["accuracy"])
    return model


def data(rows: int) -> tuple[np.ndarray, np.ndarray]:
    (images, labels), _ = fashion_mnist.load_data()
    return images[:rows].reshape(rows, -1).astype("float32") / 255, labels[:rows]


def searched(batch: int, chosen: argparse.Namespace) -> None:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    clock, processor = time.perf_counter(), time.process_time()
    found = many.search(
        build,
        SPACE,
        *data(chosen.rows),
        trials=chosen.trials,
        sampler="optuna",
        pruner=optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=1),
        batch=batch,
        monitor="val_accuracy",
        mode="max",
        epochs=chosen.epochs,
        batch_size=128,
        validation_split=0.25,
        verbose=0,
    )
    clock, processor = time.perf_counter() - clock, time.process_time() - processor
    pruned = sum(trial["state"] == "pruned" for trial in found.trials)
    epochs = sum(trial["epochs"] for trial in found.trials)
    print(
        f"{batch:2} together: {clock:.1f} s, {processor:.1f} s of processors, "
        f"best accuracy {found.best_trial['value']:.4f}, {pruned} trials pruned, "
        f"{epochs} epochs",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--batch", default="32,8,1")
    parser.add_argument("--rows", type=int, default=6000)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    chosen = parser.parse_args()
    keras.config.set_threads(chosen.threads)
    for batch in map(int, chosen.batch.split(",")):
        searched(batch, chosen)


if __name__ == "__main__":
    main()
