"""Attention layers: masks, scores, dropout, files, and what they refuse."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from mini_gpt import mini_gpt

import ganglion
from ganglion import layers, ops
from ganglion.compiler.ir.graph import ShapeError

RNG = np.random.default_rng(0)
Q = RNG.normal(size=(2, 4, 8)).astype("float32")
V = RNG.normal(size=(2, 6, 8)).astype("float32")
K = RNG.normal(size=(2, 6, 8)).astype("float32")
Q_MASK = np.arange(4) < np.array([[4], [2]])
V_MASK = np.arange(6) < np.array([[3], [6]])
K_MASK = np.arange(6) % 2 < np.array([[2], [1]])
A_MASK = RNG.random((2, 4, 6)) < 0.8

HEADED = {
    "MultiHeadAttention": {"num_heads": 2, "key_dim": 4},
    "GroupQueryAttention": {
        "head_dim": 4,
        "num_query_heads": 4,
        "num_key_value_heads": 2,
    },
}
each_headed = pytest.mark.parametrize("name", HEADED)


def equal_pair(keras: Any, kind: str, call: Any, **arguments: Any) -> tuple[Any, Any]:
    """Return our layer and Keras', with equal weights."""
    ours = getattr(layers, kind)(**arguments)
    theirs = getattr(keras.layers, kind)(**arguments)
    call(ours)
    call(theirs)
    weights = [RNG.normal(size=weight.shape) * 0.5 for weight in ours.weights]
    ours.set_weights(weights)
    theirs.set_weights(weights)
    return ours, theirs


def assert_same(ours: Any, theirs: Any) -> None:
    if isinstance(theirs, (list, tuple)):
        for mine, other in zip(ours, theirs, strict=True):
            assert_same(mine, other)
        return
    np.testing.assert_allclose(ours, np.asarray(theirs), rtol=0, atol=2e-6)


CALLS: dict[str, dict[str, Any]] = {
    "causal": {"use_causal_mask": True},
    "values": {"value_mask": V_MASK},
    "keys": {"key": K, "key_mask": K_MASK},
    "own": {"attention_mask": A_MASK},
    "own for all rows": {"attention_mask": A_MASK[:1]},
    "own of numbers": {"attention_mask": A_MASK.astype("int32")},
    "all": {
        "key": K,
        "value_mask": V_MASK,
        "key_mask": K_MASK,
        "attention_mask": A_MASK,
        "use_causal_mask": True,
    },
    "training": {"training": True, "use_causal_mask": True},
}


@pytest.mark.rivals
@each_headed
@pytest.mark.parametrize("window", [None, 2])
def test_masks_equal_keras(keras: Any, name: str, window: int | None) -> None:
    options = {**HEADED[name], "sliding_window": window}
    ours, theirs = equal_pair(keras, name, lambda layer: layer(Q, V), **options)
    for arguments in CALLS.values():
        assert_same(ours(Q, V, **arguments), theirs(Q, V, **arguments))
        scores = {"return_attention_scores": True, **arguments}
        assert_same(ours(Q, V, **scores), theirs(Q, V, **scores))


@pytest.mark.rivals
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("Attention", {"use_scale": True}),
        ("Attention", {"use_scale": True, "score_mode": "concat"}),
        ("AdditiveAttention", {}),
    ],
)
def test_masks_in_lists_equal_keras(keras: Any, name: str, options: Any) -> None:
    ours, theirs = equal_pair(keras, name, lambda layer: layer([Q, V]), **options)
    for arguments in (
        {"mask": [Q_MASK, V_MASK]},
        {"mask": [None, V_MASK], "use_causal_mask": True},
        {"mask": [Q_MASK, None], "use_causal_mask": True},
        {"use_causal_mask": True, "training": True},
    ):
        scores = {"return_attention_scores": True, **arguments}
        assert_same(ours([Q, V], **arguments), theirs([Q, V], **arguments))
        assert_same(ours([Q, V, K], **scores), theirs([Q, V, K], **scores))


def padded(k: Any, name: str) -> Any:
    """Return a model in which the masks of padded steps reach attention."""
    queries, keys = k.Input((4,), dtype="int32"), k.Input((6,), dtype="int32")
    shared = k.layers.Embedding(9, 8, mask_zero=True)
    query, value = shared(queries), shared(keys)
    if name in HEADED:
        read = getattr(k.layers, name)(**HEADED[name])(query, value)
    else:
        read = getattr(k.layers, name)()([query, value])
    return k.Model([queries, keys], k.layers.GlobalAveragePooling1D()(read))


@pytest.mark.rivals
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", [*HEADED, "Attention", "AdditiveAttention"])
def test_masks_that_inputs_carry_equal_keras(keras: Any, name: str) -> None:
    ours = padded(ganglion, name)
    queries = RNG.integers(1, 9, (2, 4), "int32") * Q_MASK
    keys = RNG.integers(1, 9, (2, 6), "int32") * V_MASK
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Keras' own: of its projections
        theirs = padded(keras, name)
        theirs.set_weights(ours.get_weights())
        expected = theirs([queries, keys])
    assert_same(ours([queries, keys]), expected)
    assert ours.layers[-2].output._keras_mask.shape == (None, 4)


@each_headed
def test_a_mask_of_the_query_counts(name: str) -> None:
    layer = getattr(layers, name)(**HEADED[name])
    _, scores = layer(Q, V, query_mask=Q_MASK, return_attention_scores=True)
    np.testing.assert_array_equal((scores != 0).any((1, 3)), Q_MASK)


@pytest.mark.rivals
@each_headed
def test_configurations_equal_keras(keras: Any, name: str) -> None:
    options = {
        **HEADED[name],
        "dropout": 0.25,
        "seed": 3,
        "kernel_regularizer": "l2",
        "bias_constraint": "non_neg",
        "name": "heads",
    }
    ours, theirs = equal_pair(keras, name, lambda layer: layer(Q, V), **options)
    assert ours.get_config() == theirs.get_config()
    assert ours.get_build_config().keys() == theirs.get_build_config().keys()
    paths = [weight.path for weight in ours.weights]
    assert paths == [weight.path for weight in theirs.weights]
    again = type(ours).from_config(ours.get_config())
    again.build_from_config(theirs.get_build_config())
    assert [w.shape for w in again.weights] == [w.shape for w in ours.weights]


@pytest.mark.rivals
@each_headed
def test_losses_of_the_activity_equal_keras(keras: Any, name: str) -> None:
    options = {**HEADED[name], "activity_regularizer": "l2"}
    ours, theirs = equal_pair(keras, name, lambda layer: layer(Q, V), **options)
    ours(Q, V)
    theirs(Q, V)
    np.testing.assert_allclose(
        sum(map(float, ours.losses)), sum(map(float, theirs.losses)), rtol=1e-5
    )


def transformer(k: Any, attention: Any) -> Any:
    """Return a model of one causal block, as scripts write it."""
    inputs = k.Input((5,), dtype="int32")
    x = k.layers.Embedding(11, 8)(inputs)
    read = attention(k)(x, x, use_causal_mask=True)
    x = k.layers.LayerNormalization(epsilon=1e-5)(k.layers.Add()([x, read]))
    hidden = k.layers.Dense(16, activation="gelu")(x)
    x = k.layers.LayerNormalization()(k.layers.Add()([x, k.layers.Dense(8)(hidden)]))
    return k.Model(inputs, k.layers.Dense(11)(x))


@pytest.mark.rivals
@each_headed
@pytest.mark.parametrize("ending", [".keras", ".weights.h5", ".h5"])
def test_files_go_both_ways(keras: Any, tmp_path: Any, name: str, ending: str) -> None:
    def attention(k: Any) -> Any:
        return getattr(k.layers, name)(**HEADED[name], dropout=0.1, use_gate=True)

    ours, theirs = transformer(ganglion, attention), transformer(keras, attention)
    tokens = RNG.integers(0, 11, (3, 5), "int32")
    path = str(tmp_path / f"model{ending}")
    if ending == ".weights.h5":
        ours.save_weights(path)
        theirs.load_weights(path)
        assert_same(ours(tokens), theirs(tokens))
        theirs.set_weights([w + 0.25 for w in theirs.get_weights()])
        theirs.save_weights(path)
        ours.load_weights(path)
        assert_same(ours(tokens), theirs(tokens))
        return
    ours.save(path)
    assert_same(ours(tokens), keras.models.load_model(path)(tokens))
    theirs.save(path)
    assert_same(ganglion.models.load_model(path)(tokens), theirs(tokens))


@pytest.mark.rivals
@each_headed
def test_a_transformer_trains_as_in_keras(keras: Any, name: str) -> None:
    def attention(k: Any) -> Any:
        return getattr(k.layers, name)(**HEADED[name])

    ours, theirs = transformer(ganglion, attention), transformer(keras, attention)
    theirs.set_weights(ours.get_weights())
    tokens = RNG.integers(0, 11, (8, 6), "int32")
    losses = []
    for k, model in ((ganglion, ours), (keras, theirs)):
        model.compile(
            # Adam would divide the rounding of a gradient of 0 by itself.
            k.optimizers.SGD(0.1, momentum=0.9),
            k.losses.SparseCategoricalCrossentropy(from_logits=True),
            jit_compile=False,
        )
        losses.append(
            [
                float(model.train_on_batch(tokens[:, :-1], tokens[:, 1:]))
                for _ in range(6)
            ]
        )
    np.testing.assert_allclose(*losses, rtol=1e-4)
    assert losses[0][-1] < losses[0][0]


@pytest.mark.rivals
def test_mini_gpt_is_the_same_in_keras(keras: Any) -> None:
    sizes = {"vocabulary": 11, "length": 6, "width": 8, "heads": 2, "blocks": 2}
    ours, theirs = mini_gpt(ganglion, **sizes), mini_gpt(keras, **sizes)
    theirs.set_weights([RNG.normal(size=w.shape) * 0.3 for w in theirs.get_weights()])
    ours.set_weights(theirs.get_weights())
    tokens = RNG.integers(0, 11, (3, 6), "int32")
    assert_same(ours(tokens), theirs(tokens))
    later = tokens.copy()
    later[:, 4:] = 0
    assert_same(ours(later)[:, :4], ours(tokens)[:, :4])  # none sees what comes later


@pytest.mark.rivals
@pytest.mark.parametrize("heads", [4, 2, 1])
def test_the_op_equals_pytorch(heads: int) -> None:
    torch = pytest.importorskip("torch")
    attend = torch.nn.functional.scaled_dot_product_attention
    query = RNG.normal(size=(2, 5, 4, 3)).astype("float32")
    key, value = RNG.normal(size=(2, 2, 5, heads, 3)).astype("float32")
    bias = RNG.normal(size=(1, 4, 5, 5)).astype("float32")
    seen = (RNG.random((2, 1, 5, 5)) < 0.6) | np.eye(5, dtype=bool)

    def turned(x: Any) -> Any:
        return torch.tensor(x).transpose(1, 2)

    for ours, theirs in (
        ({}, {}),
        ({"is_causal": True}, {"is_causal": True}),
        ({"mask": seen}, {"attn_mask": torch.tensor(seen)}),
        ({"bias": bias, "scale": 0.7}, {"attn_mask": torch.tensor(bias), "scale": 0.7}),
    ):
        expected = attend(*map(turned, (query, key, value)), **theirs, enable_gqa=True)
        actual = ops.dot_product_attention(query, key, value, **ours)
        assert_same(actual, expected.transpose(1, 2))


@pytest.mark.parametrize("name", ["Attention", "AdditiveAttention"])
@pytest.mark.parametrize("dtype", ["float16", "mixed_bfloat16"])
def test_queries_without_a_key_share_all_values(name: str, dtype: str) -> None:
    x = np.eye(2, 3, dtype="float32")[None]
    mask = [None, np.zeros((1, 2), bool)]
    y = getattr(layers, name)(dtype=dtype)([x, x], mask=mask)
    np.testing.assert_array_equal(np.asarray(y, "float32"), [[[0.5, 0.5, 0]] * 2])


def test_dropout_is_drawn_in_training_alone() -> None:
    for layer, inputs in (
        (layers.MultiHeadAttention(2, 4, dropout=0.5, seed=1), (Q, V)),
        (layers.GroupQueryAttention(4, 4, 2, dropout=0.5, seed=1), (Q, V)),
        (layers.Attention(dropout=0.5, seed=1), ([Q, V],)),
    ):
        plain = layer(*inputs)
        np.testing.assert_array_equal(layer(*inputs), plain)
        drawn = layer(*inputs, training=True)
        assert not np.allclose(drawn, plain)
        assert not np.array_equal(layer(*inputs, training=True), drawn)
        assert len(layer._seed_generators) == 1


def test_how_attention_is_computed_changes_no_result() -> None:
    heads = np.random.default_rng(0).normal(size=(2, 5, 2, 4)).astype("float32")
    plain, flash = (
        ops.dot_product_attention(heads, heads, heads, flash_attention=chosen)
        for chosen in (None, True)
    )
    np.testing.assert_array_equal(plain, flash)


def test_projections_draw_numbers_of_their_own() -> None:
    layer = layers.MultiHeadAttention(2, 4)
    layer(Q, Q)
    query, _, key, *_ = layer.get_weights()
    assert not np.array_equal(query, key)
    assert layer.query_dense.kernel is layer.weights[0]
    limit = np.sqrt(6 / (8 + 8))  # 8 inputs, 2 heads of 4
    assert 0.9 * limit < np.abs(query).max() <= limit


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: layers.MultiHeadAttention(0, 4), "argument `num_heads`"),
        (lambda: layers.MultiHeadAttention(2, 4, dropout=2), "between 0 and 1"),
        (lambda: layers.MultiHeadAttention(2, 4, sliding_window=0), "sliding_window"),
        (lambda: layers.MultiHeadAttention(2, 4, attention_axes="a"), "attention_axes"),
        (
            lambda: layers.MultiHeadAttention(2, 4, dropout=0.1, flash_attention=True),
            "Dropout is not supported when flash attention",
        ),
        (
            lambda: layers.MultiHeadAttention(2, 4, flash_attention=True)(
                Q, Q, return_attention_scores=True
            ),
            "disable flash attention to access",
        ),
        (lambda: layers.MultiHeadAttention(2, 4)(Q, V, Q), "a key for each value"),
        (lambda: layers.GroupQueryAttention(4, 3, 2), "must be a multiple"),
        (lambda: layers.GroupQueryAttention(4, 4, 2)(Q[0], V[0]), "batch, steps, size"),
        (lambda: layers.Attention(score_mode="sum"), "Received: score_mode=sum"),
        (lambda: layers.Attention()(Q), "must be called on a list"),
        (lambda: layers.Attention()([Q, V], mask=Q_MASK), "layer mask must be a list"),
        (lambda: layers.EinsumDense("ab->b", 3), "`equation` must be like"),
        (lambda: layers.EinsumDense("ab,bc->ac", 0), "`output_shape` must hold"),
        (lambda: layers.EinsumDense("ab,bc->ac", 3)(Q), "does not name the axes"),
        (lambda: layers.EinsumDense("abc,cd->abd", 3)(Q), "one size for each"),
        (lambda: layers.EinsumDense("abc,cd->abd", (5, 3))(Q), "'b' has size 4"),
        (
            lambda: layers.EinsumDense("abc,cd->abd", (None, 3), bias_axes="c")(Q),
            "is not an axis of the outputs",
        ),
        (
            lambda: layers.EinsumDense("abc,cd->abd", (None, 3)).build((None, 4, None)),
            "need to know the size of axis 'c'",
        ),
    ],
)
def test_what_does_not_fit_is_named(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_a_mask_that_does_not_fit_is_named() -> None:
    with pytest.raises(ShapeError):
        layers.MultiHeadAttention(2, 4)(Q, V, attention_mask=A_MASK[:, :3])
    with pytest.raises(ShapeError, match="a divisor of them"):
        ops.dot_product_attention(Q[:, :, None], V[:, :, None, :4], V[:, :, None])


def test_a_layer_of_ones_own_is_built_with_the_shapes_it_names() -> None:
    class Mixer(layers.Layer):
        def build(self, left_shape: Any, right_shape: Any) -> None:
            self.kernel = self.add_weight((left_shape[-1], right_shape[-1]), "ones")

        def call(self, left: Any, right: Any) -> Any:
            return ops.matmul(left, self.kernel) * right

    left, right = np.ones((2, 3), "float32"), np.ones((2, 5), "float32")
    mixer = Mixer()
    assert mixer(left, right=right).shape == (2, 5)
    shapes = {"left_shape": (2, 3), "right_shape": (2, 5)}
    assert mixer.get_build_config() == {"shapes_dict": shapes}
    symbolic = Mixer()(ganglion.Input((3,)), ganglion.Input((5,)))
    assert symbolic.shape == (None, 5)
    by_hand = Mixer()
    by_hand.build((1, 3), right_shape=(1, 5))
    assert by_hand.kernel.shape == (3, 5)
