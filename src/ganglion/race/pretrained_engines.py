"""A run of a race on a pretrained start, in a separate process.

Reads a task as JSON from standard input, and prints what it measured as JSON. Both
engines are given the same decoded pixels, labels and ImageNet weights.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ganglion.race.engines.worker import most_memory

HEAD_RATE, BODY_RATE = 1e-3, 1e-4  # PyTorch's: the new layers have a higher rate


def _arrays(folder: Path) -> dict[str, np.ndarray]:
    names = ("x", "y", "x_test", "y_test")
    return {name: np.load(folder / f"{name}.npy", allow_pickle=False) for name in names}


def half_frozen(task: dict[str, Any], data: dict[str, np.ndarray]) -> dict[str, Any]:
    """Train as `ganglion train --pretrained` does."""
    begun = time.perf_counter()
    from ganglion import utils
    from ganglion.applications import transfer

    imported = time.perf_counter()
    utils.set_random_seed(task["seed"])
    start = transfer.start(task["classes"], data["x"].shape[1:3])
    prepared = time.perf_counter()
    watch = _watch(prepared)
    train, test = (data["x"], data["y"]), (data["x_test"], data["y_test"])
    transfer.train_head(start, train)
    transfer.fine_tune(
        start,
        train,
        test,
        epochs=task["epochs"],
        batch_size=task["batch_size"],
        callbacks=[watch],
    )
    return {
        "form": "head, then last blocks",
        "import_seconds": imported - begun,
        "prepare_seconds": prepared - imported,
        "parameters": start.model.count_params(),
        "epochs": watch.epochs,
    }


def _watch(begun: float) -> Any:
    """Return a callback that times epochs and tests, all since the beginning."""
    from ganglion.callbacks import Callback

    class Watch(Callback):
        def __init__(self) -> None:
            super().__init__()
            self.epochs: list[tuple[float, ...]] = []
            self._since = self._tested = begun

        def on_test_begin(self, logs: Any = None) -> None:
            self._tested = time.perf_counter()

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            names = ("loss", "accuracy", "val_loss", "val_accuracy")
            now = time.perf_counter()
            times = (self._tested - self._since, now - self._tested)
            self.epochs.append(
                (epoch + 1, *(float(logs[name]) for name in names), *times)
            )
            self._since = now

    return Watch()


def fine_tuned(task: dict[str, Any], data: dict[str, np.ndarray]) -> dict[str, Any]:
    """Train all weights in PyTorch, as its guides do it.

    Batch normalisation keeps ImageNet's averages, and the rates fall along a cosine, as
    in ours: with averages of its batches it ends at a far lower accuracy.
    """
    begun = time.perf_counter()
    import torch
    from efficientnet_lite_pytorch import EfficientNet

    from ganglion.applications.efficientnet_lite import weights_file

    imported = time.perf_counter()
    torch.manual_seed(task["seed"])
    torch.set_num_threads(task["threads"])
    size = list(data["x"].shape[1:3])
    model = EfficientNet.from_name("efficientnet-lite0", image_size=size)
    model.load_state_dict(torch.load(weights_file(), weights_only=True))
    model._fc = torch.nn.Linear(model._fc.in_features, task["classes"])
    model = model.to(memory_format=torch.channels_last)
    learning = _optimizer(torch, model, task, len(data["x"]))
    prepared = time.perf_counter()
    epochs = []
    for number in range(task["epochs"]):
        began = time.perf_counter()
        order = torch.randperm(len(data["x"])).numpy()
        train = _pass(torch, model, data["x"], data["y"], order, task, learning)
        half = time.perf_counter()
        order = np.arange(len(data["x_test"]))
        test = _pass(torch, model, data["x_test"], data["y_test"], order, task, None)
        times = (half - began, time.perf_counter() - half)
        epochs.append((number + 1, *train, *test, *times))
    return {
        "form": "all weights, eager",
        "import_seconds": imported - begun,
        "prepare_seconds": prepared - imported,
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "epochs": epochs,
    }


def _optimizer(torch: Any, model: Any, task: dict[str, Any], images: int) -> Any:
    """Return Adam, and the schedule along which its rates fall to zero."""
    body = [
        parameter for name, parameter in model.named_parameters() if "_fc" not in name
    ]
    groups = [
        {"params": body, "lr": BODY_RATE},
        {"params": model._fc.parameters(), "lr": HEAD_RATE},
    ]
    optimizer = torch.optim.Adam(groups)
    steps = task["epochs"] * -(-images // task["batch_size"])
    return optimizer, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)


def _pass(
    torch: Any,
    model: Any,
    x: np.ndarray,
    y: np.ndarray,
    order: np.ndarray,
    task: dict[str, Any],
    learning: Any,
) -> tuple[float, float]:
    """Return loss and accuracy of a pass over data, learning with an optimizer."""
    model.train(learning is not None)
    for layer in model.modules():
        if isinstance(layer, torch.nn.BatchNorm2d):
            layer.eval()
    total = right = 0.0
    with torch.set_grad_enabled(learning is not None):
        for at in range(0, len(order), task["batch_size"]):
            rows = order[at : at + task["batch_size"]]
            pixels = torch.from_numpy(x[rows]).permute(0, 3, 1, 2)  # channels last
            labels = torch.from_numpy(y[rows]).long()
            scores = model((pixels.float() - 127) / 128)
            loss = torch.nn.functional.cross_entropy(scores, labels)
            if learning is not None:
                optimizer, schedule = learning
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
            total += loss.item() * len(rows)
            right += int((scores.argmax(1) == labels).sum())
    return total / len(order), right / len(order)


ENGINES: dict[str, Callable[[dict[str, Any], dict[str, np.ndarray]], Any]] = {
    "ganglion": half_frozen,
    "torch": fine_tuned,
}


def main() -> None:
    """Run an engine once."""
    task = json.load(sys.stdin)
    answer, sys.stdout = sys.stdout, sys.stderr  # whatever engines print is a log
    result = ENGINES[task["engine"]](task, _arrays(Path(task["data"])))
    result["peak_memory"] = most_memory()
    answer.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
