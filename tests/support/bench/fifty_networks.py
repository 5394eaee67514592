"""The start-up time of many small networks: each is built, compiled and fitted once.

    python tests/support/bench/fifty_networks.py             # as the cache is
    python tests/support/bench/fifty_networks.py --cold      # with an empty cache
    python tests/support/bench/fifty_networks.py --torch     # the same in PyTorch

Prints processor time and wall time of all networks, then of the first and the fastest.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator

import numpy as np

ROWS, FEATURES, BATCH = 2000, 20, 32
WIDTHS = range(16, 116, 2)


def data() -> tuple[np.ndarray, np.ndarray]:
    """Return made-up rows, and something to learn of them."""
    x = np.random.default_rng(0).normal(size=(ROWS, FEATURES)).astype("float32")
    return x, np.sin(x[:, :1]) + x[:, 1:2] * x[:, 2:3]


def in_ganglion(x: np.ndarray, y: np.ndarray) -> Callable[[int], float]:
    """Return what trains a network of a width, and returns its loss."""
    import ganglion as keras

    def train(width: int) -> float:
        hidden = [keras.layers.Dense(width, activation="relu") for _ in range(2)]
        model = keras.Sequential(
            [keras.Input((FEATURES,)), *hidden, keras.layers.Dense(1)]
        )
        model.compile("adam", "mse")
        return model.fit(x, y, batch_size=BATCH, verbose=0).history["loss"][0]

    return train


def in_torch(x: np.ndarray, y: np.ndarray) -> Callable[[int], float]:
    """Return the same in PyTorch, in the shortest loop that shuffles."""
    import torch

    rows, targets = torch.from_numpy(x), torch.from_numpy(y)

    def train(width: int) -> float:
        model = torch.nn.Sequential(
            torch.nn.Linear(FEATURES, width),
            torch.nn.ReLU(),
            torch.nn.Linear(width, width),
            torch.nn.ReLU(),
            torch.nn.Linear(width, 1),
        )
        optimizer = torch.optim.Adam(model.parameters(), 0.001)
        for batch in torch.randperm(ROWS).split(BATCH):
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(rows[batch]), targets[batch])
            loss.backward()
            optimizer.step()
        return loss.item()

    return train


def timed(train: Callable[[int], float]) -> Iterator[tuple[float, float]]:
    """Yield the processor time and the wall time of each network."""
    for width in WIDTHS:
        before = time.process_time(), time.perf_counter()
        assert np.isfinite(train(width))
        yield time.process_time() - before[0], time.perf_counter() - before[1]


def main() -> None:
    """Print the times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--torch", action="store_true")
    parser.add_argument("--cold", action="store_true")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as empty:
        if chosen.cold:
            os.environ["GANGLION_HOME"] = empty
        times = list(timed((in_torch if chosen.torch else in_ganglion)(*data())))
    processor, wall = (sum(column) for column in zip(*times, strict=True))
    first, then = times[0], min(times)
    print(f"{len(times)} networks: {processor:.2f} s of processor, {wall:.2f} s in all")
    print(f"the first {first[0]:.3f} s of processor, the fastest {then[0]:.4f} s")


if __name__ == "__main__":
    main()
