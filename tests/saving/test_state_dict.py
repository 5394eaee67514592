"""Weights under PyTorch's names: the same outputs in PyTorch, in and out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ganglion as keras
from ganglion import layers, saving
from ganglion.saving.weights import MismatchError

torch = pytest.importorskip("torch", reason="compares with PyTorch")
nn = torch.nn
pytestmark = pytest.mark.rivals

Pair = tuple[Any, Any, tuple[int, ...]]  # the two models, and the input's shape


def sequential(shape: tuple[int, ...], *parts: Any, dtype: Any = None) -> Any:
    return keras.Sequential([keras.Input(shape, dtype=dtype), *parts])


def perceptron() -> Pair:
    ours = sequential((4,), layers.Dense(5, activation="relu"), layers.Dense(3))
    return ours, nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)), (4,)


def images() -> Pair:
    """Return a network that flattens images, with norms on both sides of that."""
    ours = sequential(
        (9, 8, 3),
        layers.Conv2D(4, (3, 2), strides=2),
        layers.BatchNormalization(epsilon=1e-5),
        layers.DepthwiseConv2D(2, depth_multiplier=2),
        layers.ReLU(),
        layers.MaxPooling2D((1, 2)),
        layers.Flatten(),
        layers.BatchNormalization(epsilon=1e-5),
        layers.Dense(5),
    )
    theirs = nn.Sequential(
        nn.Conv2d(3, 4, (3, 2), stride=2),
        nn.BatchNorm2d(4),
        nn.Conv2d(4, 8, 2, groups=4),
        nn.ReLU(),
        nn.MaxPool2d((1, 2)),
        nn.Flatten(),
        nn.BatchNorm1d(24),
        nn.Linear(24, 5),
    )
    return ours, theirs, (9, 8, 3)


class Separable(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(3, 3, 3, groups=3, bias=False)
        self.pointwise = nn.Conv2d(3, 6, 1)

    def forward(self, x: Any) -> Any:
        return self.pointwise(self.depthwise(x))


def more_convolutions() -> Pair:
    ours = sequential(
        (6, 6, 3),
        layers.SeparableConv2D(6, 3),
        layers.PReLU(shared_axes=[1, 2]),
        layers.GroupNormalization(2, epsilon=1e-5),
        layers.Conv2D(4, 1, groups=2),
        layers.Conv2DTranspose(2, 3, strides=2),
    )
    theirs = nn.Sequential(
        Separable(),
        nn.PReLU(6),
        nn.GroupNorm(2, 6),
        nn.Conv2d(6, 4, 1, groups=2),
        nn.ConvTranspose2d(4, 2, 3, stride=2),
    )
    return ours, theirs, (6, 6, 3)


class Recurrent(nn.Module):
    """Embedding, a stacked bidirectional LSTM, a GRU, a plain RNN and a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 4)
        self.lstm = nn.LSTM(4, 3, 2, batch_first=True, bidirectional=True)
        self.gru = nn.GRU(6, 5, batch_first=True)
        self.rnn = nn.RNN(5, 4, batch_first=True)
        self.norm = nn.LayerNorm(4)

    def forward(self, x: Any) -> Any:
        x, _ = self.lstm(self.embedding(x))
        x, _ = self.gru(x)
        return self.norm(self.rnn(x)[0])


def recurrent() -> Pair:
    ours = sequential(
        (7,),
        layers.Embedding(11, 4),
        layers.Bidirectional(layers.LSTM(3, return_sequences=True)),
        layers.Bidirectional(layers.LSTM(3, return_sequences=True)),
        layers.GRU(5, return_sequences=True),
        layers.SimpleRNN(4, return_sequences=True),
        layers.LayerNormalization(epsilon=1e-5),
        dtype="int32",
    )
    return ours, Recurrent(), (7,)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.conv = nn.Conv1d(8, 3, 2)

    def forward(self, x: Any) -> Any:
        x = x.transpose(1, 2)  # from channels first, as all inputs come here
        x = self.attention(x, x, x)[0]
        return self.conv(x.transpose(1, 2))


def attention() -> Pair:
    x = keras.Input((5, 8))
    y = layers.MultiHeadAttention(2, 4)(x, x)
    return keras.Model(x, layers.Conv1D(3, 2)(y)), Attention(), (5, 8)


class Block(keras.layers.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.conv = layers.Conv2D(3, 1)
        self.norm = layers.BatchNormalization(epsilon=1e-5)

    def call(self, x: Any) -> Any:
        return x + self.norm(self.conv(x))


class Own(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = [Block(), Block()]
        self.head = layers.Dense(2)

    def call(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return self.head(keras.ops.mean(x, axis=(1, 2)))


class TorchBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3)

    def forward(self, x: Any) -> Any:
        return x + self.norm(self.conv(x))


class TorchOwn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([TorchBlock(), TorchBlock()])
        self.head = nn.Linear(3, 2)

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean((2, 3)))


def own_class() -> Pair:
    ours = Own()
    ours(np.zeros((1, 4, 4, 3), "float32"))
    return ours, TorchOwn(), (4, 4, 3)


PAIRS = [perceptron, images, more_convolutions, recurrent, attention, own_class]


def drawn(theirs: Any) -> None:
    """Give a model of PyTorch weights that are far from special ones."""
    generator = torch.Generator().manual_seed(1)
    for name, value in theirs.state_dict().items():
        if value.dtype.is_floating_point:
            low = 0.5 if name.endswith("running_var") else -0.7
            value.uniform_(low, 1.0, generator=generator)
    theirs.eval()


def outputs(ours: Any, theirs: Any, shape: tuple[int, ...]) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    if len(shape) == 1 and shape[0] == 7:
        x = rng.integers(0, 11, (3, *shape)).astype("int32")
        y = theirs(torch.from_numpy(x).long())
    else:
        x = rng.normal(size=(3, *shape)).astype("float32")
        y = theirs(torch.from_numpy(channels_first(x)))
    return ours(x), channels_last(y.detach().numpy()) if len(shape) > 1 else y.detach()


def channels_first(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(np.moveaxis(x, -1, 1)) if x.ndim > 2 else x


def channels_last(x: np.ndarray) -> np.ndarray:
    return np.moveaxis(x, 1, -1) if x.ndim > 2 else x


@pytest.mark.parametrize("pair", PAIRS)
def test_weights_of_pytorch_give_the_outputs_of_pytorch(
    pair: Any, tmp_path: Path
) -> None:
    ours, theirs, shape = pair()
    drawn(theirs)
    torch.save(theirs.state_dict(), tmp_path / "w.pt")
    ours.load_weights(tmp_path / "w.pt")
    np.testing.assert_allclose(*outputs(ours, theirs, shape), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("ending", ["pt", "safetensors"])
@pytest.mark.parametrize("pair", PAIRS)
def test_files_of_both_kinds_keep_all_weights(
    pair: Any, ending: str, tmp_path: Path
) -> None:
    """A file of each kind, PyTorch's read by PyTorch, has what was loaded before."""
    ours, theirs, _ = pair()
    drawn(theirs)
    saving.load_state_dict(ours, theirs.state_dict())
    ours.save_weights(tmp_path / f"w.{ending}")
    if ending == "pt":
        state = torch.load(tmp_path / "w.pt", weights_only=True)
    else:
        state = saving.safetensors.read(tmp_path / "w.safetensors").arrays
    again = pair()[0]
    again.load_weights(tmp_path / f"w.{ending}")
    for before, after in zip(ours.get_weights(), again.get_weights(), strict=True):
        np.testing.assert_array_equal(before, after)
    written = {name: np.asarray(tensor) for name, tensor in state.items()}
    for name, array in saving.state_dict(ours).items():
        np.testing.assert_array_equal(written[name], array)


def test_a_file_of_ours_loads_in_pytorch_by_its_names(tmp_path: Path) -> None:
    ours, theirs, shape = own_class()
    ours.save_weights(tmp_path / "w.pt")
    theirs.load_state_dict(torch.load(tmp_path / "w.pt", weights_only=True))
    theirs.eval()
    np.testing.assert_allclose(*outputs(ours, theirs, shape), rtol=1e-4, atol=1e-5)


def test_names_are_those_that_pytorch_users_understand() -> None:
    ours, _, _ = images()
    names = {n: a.shape for n, a in saving.state_dict(ours).items()}
    conv, norm = ours.layers[0].name, ours.layers[1].name
    assert names[f"{conv}.weight"] == (4, 3, 3, 2)
    assert {f"{norm}.running_mean", f"{norm}.running_var"} <= names.keys()


def test_what_does_not_fit_is_named_and_nothing_changes() -> None:
    ours = perceptron()[0]
    before = ours.get_weights()
    state = nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 2)).state_dict()
    with pytest.raises(MismatchError, match=r"no place for 1\.weight \(2, 5\)"):
        saving.load_state_dict(ours, state)
    with pytest.raises(MismatchError, match=r"nothing fits.*dense.*\(3, 5\)"):
        saving.load_state_dict(ours, state)
    for old, new in zip(before, ours.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


def test_a_file_without_order_is_refused_where_order_matters() -> None:
    """Other writers of safetensors sort by name, so that the order is lost."""
    ours = sequential((4,), layers.Dense(4), layers.Dense(4))
    numbered = {f"{n}.weight": np.full((4, 4), n, "float32") for n in (10, 9)}
    numbered |= {f"{n}.bias": np.zeros(4, "float32") for n in (10, 9)}
    saving.load_state_dict(ours, numbered, is_ordered=False)
    assert [w[0, 0] for w in ours.get_weights()[::2]] == [9, 10]
    words = {k.replace("10", "out").replace("9", "in"): v for k, v in numbered.items()}
    with pytest.raises(MismatchError, match="has no order"):
        saving.load_state_dict(ours, words, is_ordered=False)
