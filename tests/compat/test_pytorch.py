"""PyTorch's functions and methods on Ganglion's tensors, beside PyTorch itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import ganglion
from ganglion import ops
from ganglion.compat import pytorch_methods

torch = pytest.importorskip("torch")
F = torch.nn.functional
X = np.random.default_rng(0).normal(size=(3, 4)).astype("float32")
CUBE = np.random.default_rng(1).normal(size=(2, 3, 4)).astype("float32")
CLASSES = np.array([1, 3, 0])


@pytest.fixture
def methods() -> Iterator[None]:
    with pytorch_methods.installed():
        yield


def as_arrays(result: Any) -> list[np.ndarray]:
    parts = result if isinstance(result, (tuple, list)) else [result]
    return [np.asarray(part) for part in parts]


METHODS = {
    "max(1)": lambda x: x.max(1),
    "min(dim=0, keepdim=True)": lambda x: x.min(dim=0, keepdim=True),
    "max()": lambda x: x.max(),
    "std()": lambda x: x.std(),
    "var(1)": lambda x: x.var(1),
    "std(dim=0, unbiased=False)": lambda x: x.std(dim=0, unbiased=False),
    "transpose(0, 1)": lambda x: x.transpose(0, 1),
    "repeat(2, 3)": lambda x: x.repeat(2, 3),
    "flatten(0)": lambda x: x.flatten(0),
    "view(-1, 2)": lambda x: x.view(-1, 2),
    "permute(1, 0)": lambda x: x.permute(1, 0),
    "unsqueeze(1)": lambda x: x.unsqueeze(1).squeeze(0),
    "sort": lambda x: x.sort(dim=0, descending=True),
    "topk": lambda x: x.topk(2, dim=0, largest=False),
    "norm": lambda x: x.norm(dim=1),
    "mean": lambda x: x.mean(1, True),
    "numbers": lambda x: [x.size(0), x.dim(), x.numel(), *x.size()],
    "expand": lambda x: x[:1].expand(3, -1),
    "split": lambda x: x.split(3, dim=1),
    "chunk": lambda x: x.chunk(3, 1),
    "masked_fill": lambda x: x.masked_fill(x > 0, -1.0),
    "gt": lambda x: x.gt(0).long().sum(),
    "clamp": lambda x: x.clamp(min=0).sqrt(),
    "softmax": lambda x: x.softmax(dim=0),
    "float": lambda x: (x > 0).float().mean(),
    "t": lambda x: x.t() @ x,
    "median": lambda x: x.median(dim=1),
    "to": lambda x: x.to(torch.int64).to("cpu"),
    "where": lambda x: x.where(x > 0, x * 2),
    "new": lambda x: x.new_ones(2, 3),
    "index_select": lambda x: x.index_select(1, torch.tensor([2, 0])),
}


@pytest.mark.usefixtures("methods")
@pytest.mark.parametrize("name", METHODS)
def test_methods_return_what_those_of_pytorch_do(name: str) -> None:
    call = METHODS[name]
    expected = as_arrays(call(torch.tensor(X)))
    traced = ganglion.function(lambda x: call(x))
    for result in (call(ops.convert_to_tensor(X)), traced(ops.convert_to_tensor(X))):
        for ours, theirs in zip(as_arrays(result), expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
            assert ours.shape == theirs.shape


FUNCTIONS = {
    "max": lambda x: torch.max(x, dim=1),
    "var": lambda x: torch.var(x, 0),
    "gather": lambda x: torch.gather(x, 1, torch.tensor([[3, 0], [1, 1]])),
    "einsum": lambda x: torch.einsum("ij,kj->ik", x, torch.tensor(X)),
    "flatten": lambda x: torch.flatten(x.reshape(3, 2, 2), 1),
    "normalize": lambda x: F.normalize(x),
    "norm": lambda x: torch.linalg.norm(x, dim=1),
    "cosine": lambda x: F.cosine_similarity(x, torch.tensor(X[::-1].copy())),
    "activations": lambda x: F.gelu(x) + F.leaky_relu(x) + F.softplus(x) + F.silu(x),
    "smooth_l1": lambda x: torch.nn.SmoothL1Loss(beta=0.5)(x, torch.zeros(3, 4)),
    "huber": lambda x: F.huber_loss(x, torch.zeros(3, 4), reduction="sum"),
    "bce": lambda x: F.binary_cross_entropy(torch.sigmoid(x), torch.ones(3, 4)),
    "bce logits": lambda x: torch.nn.BCEWithLogitsLoss(pos_weight=torch.tensor(3.0))(
        x, torch.tensor((X > 0).astype("float32"))
    ),
    "cross entropy": lambda x: F.cross_entropy(
        x, torch.tensor(CLASSES), ignore_index=3, label_smoothing=0.1
    ),
    "soft labels": lambda x: F.cross_entropy(x, torch.ones(3, 4), label_smoothing=0.2),
    "weighted classes": lambda x: F.cross_entropy(
        x, torch.tensor(CLASSES), weight=torch.arange(1.0, 5.0), ignore_index=0
    ),
    "classes of pixels": lambda x: F.cross_entropy(
        x.reshape(1, 3, 2, 2), torch.tensor([[[0, 2], [1, 1]]]), reduction="none"
    ),
    "nonzero": lambda x: torch.nonzero(x > 0),
    "pad": lambda x: F.pad(x, (1, 0, 0, 2), value=3.0),
    "linear": lambda x: F.layer_norm(F.linear(x, torch.eye(4)[:3]), (3,)),
    "cdist": lambda x: torch.cdist(x, x + 1) + F.pairwise_distance(x, x * 2),
    "addmm": lambda x: torch.addmm(torch.ones(3, 3), x, x.T, beta=2, alpha=0.5),
    "lerp": lambda x: torch.lerp(x, x + 1, 0.25) + torch.full_like(x, 2.0),
    "median": lambda x: torch.median(x),
    "nll": lambda x: F.nll_loss(
        torch.log_softmax(x, 1), torch.tensor(CLASSES), ignore_index=0
    ),
    "kl": lambda x: F.kl_div(
        torch.log_softmax(x, 1), torch.eye(3, 4), reduction="batchmean"
    ),
    "mixed": lambda x: torch.ones(3, 4) * 2 - x / torch.full((3, 4), 3.0),
    "one_hot": lambda x: F.one_hot(torch.argmax(x, dim=1), 4),
    "split": lambda x: torch.split(x, [1, 3], dim=1),
    "close": lambda x: torch.allclose(x, torch.tensor(X)),
    "std": lambda x: torch.std(x, dim=(0, 1)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_return_what_those_of_pytorch_do(name: str) -> None:
    call = FUNCTIONS[name]
    ours = as_arrays(call(ops.convert_to_tensor(X)))
    theirs = as_arrays(call(torch.tensor(X)))
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("methods")
def test_positions_are_a_matrix_as_in_pytorch() -> None:
    positions = ops.convert_to_tensor(X > 0).nonzero()
    np.testing.assert_array_equal(positions, np.argwhere(X > 0))
    numbers = ops.convert_to_tensor(CLASSES[[1, 0, 1]]).unique()
    np.testing.assert_array_equal(numbers, [1, 3])


@pytest.mark.usefixtures("methods")
def test_methods_in_numpys_words_are_numpys() -> None:
    x = ops.convert_to_tensor(CUBE)
    np.testing.assert_array_equal(x.max(axis=1), CUBE.max(axis=1))
    np.testing.assert_array_equal(x.transpose(2, 0, 1), CUBE.transpose(2, 0, 1))
    np.testing.assert_array_equal(np.std(x), np.std(CUBE))
    assert x.size == 24
    assert type(x.view(np.ndarray)) is np.ndarray


def test_without_pytorch_methods_are_numpys() -> None:
    x = ops.convert_to_tensor(X)
    assert x.std() == pytest.approx(X.std())
    assert not hasattr(x, "permute")


def test_state_dict_is_assigned_by_path(tmp_path) -> None:
    def build() -> Any:
        inputs = ganglion.Input((3,), name="in")
        hidden = ganglion.layers.Dense(2, name="hidden")(inputs)
        return ganglion.Model(
            inputs, ganglion.layers.BatchNormalization(name="n")(hidden)
        )

    first, second = build(), build().train().eval()
    torch.save(first.state_dict(), tmp_path / "m.pth")
    second.load_state_dict(torch.load(tmp_path / "m.pth"))
    for one, other in zip(first.get_weights(), second.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(ValueError, match="hidden/bias"):
        second.load_state_dict({})
