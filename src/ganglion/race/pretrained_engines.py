"""One run of a race on a pretrained start, in a process of its own.

Reads a task as JSON from standard input, and prints what it measured as JSON. Both
engines are given the same decoded pixels, labels and ImageNet weights.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

HEAD_EPOCHS = 60  # ours: milliseconds each, told as those of the race
HEAD_RATE, BODY_RATE = 1e-3, 1e-4  # PyTorch's: what is new learns faster


def _arrays(folder: Path) -> dict[str, np.ndarray]:
    names = ("x", "y", "x_test", "y_test")
    return {name: np.load(folder / f"{name}.npy", allow_pickle=False) for name in names}


def frozen(task: dict[str, Any], data: dict[str, np.ndarray]) -> dict[str, Any]:
    """Compute the features once, and train a head on them; nothing comes from disk."""
    begun = time.perf_counter()
    from ganglion import utils
    from ganglion.applications import transfer

    imported = time.perf_counter()
    utils.set_random_seed(task["seed"])
    start = transfer.start(task["classes"], data["x"].shape[1:3])
    prepared = time.perf_counter()
    x = transfer.features(start, data["x"], keep=False)
    seconds = time.perf_counter() - prepared  # compiling counts, too
    x_test = transfer.features(start, data["x_test"], keep=False)
    test_seconds = time.perf_counter() - prepared - seconds
    transfer.compile_for_training(start.head, transfer.HEAD_RATE)
    epochs = []
    share = max(1, HEAD_EPOCHS // task["epochs"])
    for number in range(task["epochs"]):
        began = time.perf_counter()
        found = start.head.fit(
            x, data["y"], batch_size=task["batch_size"], epochs=share, verbose=0
        ).history
        seconds += time.perf_counter() - began
        began = time.perf_counter()
        loss, accuracy = start.head.evaluate(x_test, data["y_test"], verbose=0)
        test_seconds += time.perf_counter() - began
        last = (found["loss"][-1], found["accuracy"][-1], loss, accuracy)
        epochs.append((number + 1, *last, seconds, test_seconds))
        seconds = test_seconds = 0.0
    return {
        "form": f"frozen features, {share * task['epochs']} epochs of a head",
        "import_seconds": imported - begun,
        "prepare_seconds": prepared - imported,
        "parameters": start.model.count_params(),
        "epochs": epochs,
    }


def fine_tuned(task: dict[str, Any], data: dict[str, np.ndarray]) -> dict[str, Any]:
    """Train all weights in PyTorch, as its guides do it."""
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
    body = [one for name, one in model.named_parameters() if "_fc" not in name]
    groups = [
        {"params": body, "lr": BODY_RATE},
        {"params": model._fc.parameters(), "lr": HEAD_RATE},
    ]
    optimizer = torch.optim.Adam(groups)
    prepared = time.perf_counter()
    epochs = []
    for number in range(task["epochs"]):
        began = time.perf_counter()
        order = torch.randperm(len(data["x"])).numpy()
        train = _pass(torch, model, data["x"], data["y"], order, task, optimizer)
        half = time.perf_counter()
        order = np.arange(len(data["x_test"]))
        test = _pass(torch, model, data["x_test"], data["y_test"], order, task, None)
        times = (half - began, time.perf_counter() - half)
        epochs.append((number + 1, *train, *test, *times))
    return {
        "form": "fine-tuning of all weights, eager, channels last",
        "import_seconds": imported - begun,
        "prepare_seconds": prepared - imported,
        "parameters": sum(one.numel() for one in model.parameters()),
        "epochs": epochs,
    }


def _pass(
    torch: Any,
    model: Any,
    x: np.ndarray,
    y: np.ndarray,
    order: np.ndarray,
    task: dict[str, Any],
    optimizer: Any,
) -> tuple[float, float]:
    """Return loss and accuracy of a pass over data, learning with an optimizer."""
    model.train(optimizer is not None)
    total = right = 0.0
    with torch.set_grad_enabled(optimizer is not None):
        for at in range(0, len(order), task["batch_size"]):
            rows = order[at : at + task["batch_size"]]
            pixels = torch.from_numpy(x[rows]).permute(0, 3, 1, 2)  # channels last
            labels = torch.from_numpy(y[rows]).long()
            scores = model((pixels.float() - 127) / 128)
            loss = torch.nn.functional.cross_entropy(scores, labels)
            if optimizer is not None:
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            total += loss.item() * len(rows)
            right += int((scores.argmax(1) == labels).sum())
    return total / len(order), right / len(order)


ENGINES: dict[str, Callable[[dict[str, Any], dict[str, np.ndarray]], Any]] = {
    "ganglion": frozen,
    "torch": fine_tuned,
}


def main() -> None:
    """Run one engine once."""
    task = json.load(sys.stdin)
    answer, sys.stdout = sys.stdout, sys.stderr  # whatever engines print is a log
    found = ENGINES[task["engine"]](task, _arrays(Path(task["data"])))
    usage = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found["peak_memory"] = usage * (1 if sys.platform == "darwin" else 1024)
    answer.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
