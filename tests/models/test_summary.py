"""The table of layers: real models, and line by line against what Keras prints."""

import numpy as np
import pytest

import ganglion
from ganglion import layers, ops
from ganglion.models.summary import bytes_text, summary, summary_text


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "140")


def mnist_cnn(keras):
    L = keras.layers
    return keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            L.Conv2D(32, kernel_size=(3, 3), activation="relu"),
            L.MaxPooling2D(pool_size=(2, 2)),
            L.Conv2D(64, kernel_size=(3, 3), activation="relu"),
            L.MaxPooling2D(pool_size=(2, 2)),
            L.Flatten(),
            L.Dropout(0.5),
            L.Dense(10, activation="softmax"),
        ]
    )


def long_names(keras):
    L = keras.layers
    name = "a_layer_whose_name_is_far_too_long_for_the_first_column_of_the_table"
    return keras.Sequential(
        [
            keras.Input((28, 28, 3)),
            L.BatchNormalization(name=name),
            L.GlobalAveragePooling2D(name="pooling_that_has_to_wrap"),
            L.Dense(10),
        ],
        name="long",
    )


def unbuilt(keras):
    return keras.Sequential([keras.layers.Dense(3), keras.layers.Flatten()])


def chain(keras):
    x = keras.Input((8,))
    y = keras.layers.Dense(4, name="hidden")(x)
    return keras.Model(x, keras.layers.Dense(2, name="end")(y))


def merged(keras):
    L = keras.layers
    a, b = keras.Input((4,), name="a"), keras.Input((3,), name="b")
    left, right = L.Dense(2, name="left")(a), L.Dense(5, name="right")(b)
    both = L.Concatenate(name="both")([left, right])
    shared = L.Dense(7, name="shared")
    total = L.Add(name="total")([shared(both), shared(both)])
    return keras.Model([a, b], [L.Dense(1, name="end")(total), right], name="merged")


def two_ends(keras):
    L = keras.layers
    x = keras.Input((6,), name="x")
    y = L.Dense(3, name="y")(x)
    return keras.Model(x, [y, L.Dense(2, name="z")(y)], name="two_ends")


def skipping(keras):
    L = keras.layers
    x = keras.Input((6,), name="x")
    y = L.Dense(6, name="first")(x)
    y = L.Dense(6, name="second")(y)
    return keras.Model(x, L.Add(name="sum")([x, y]), name="skipping")


def nested(keras):
    L = keras.layers
    parts = [keras.Input((5,)), L.Dense(3, name="in_1"), L.BatchNormalization(name="n")]
    inner = keras.Sequential(parts, name="inner")
    x = keras.Input((5,), name="x")
    return keras.Model(x, L.Dense(1, name="end")(inner(x)), name="outer")


MODELS = [mnist_cnn, long_names, unbuilt, chain, merged, two_ends, skipping, nested]


def test_the_published_numbers():
    text = summary_text(mnist_cnn(ganglion))
    lines = text.splitlines()
    assert lines[0] == 'Model: "sequential"'
    assert lines[2] == (
        "┃ Layer (type)                         ┃ Output Shape                "
        "┃         Param # ┃"
    )
    assert lines[-3:] == [
        " Total params: 34,826 (136.04 KB)",
        " Trainable params: 34,826 (136.04 KB)",
        " Non-trainable params: 0 (0.00 B)",
    ]


def test_printing_goes_to_standard_output_or_to_a_function(capsys):
    model = chain(ganglion)
    summary(model)
    printed = capsys.readouterr().out
    kept = []
    model.summary(print_fn=kept.append)
    assert printed == "".join(kept)
    assert capsys.readouterr().out == ""


def test_ops_are_listed_by_their_names():
    x = ganglion.Input((4,), name="x")
    model = ganglion.Model(x, layers.Dense(2, name="end")(ops.expand_dims(x, 1)))
    assert "│ expand_dims (ExpandDims)" in summary_text(model)
    assert "│ (None, 1, 4)" in summary_text(model)


def test_slots_of_the_optimizer_are_counted():
    model = chain(ganglion)
    model.compile("adam", "mse")
    model.fit(np.zeros((4, 8)), np.zeros((4, 2)), verbose=0)
    lines = summary_text(model).splitlines()
    weights = model.count_params()
    slots = sum(variable.size for variable in model.optimizer.variables)
    assert slots >= 2 * weights
    assert lines[-4].startswith(f" Total params: {weights + slots} ")
    assert lines[-1].startswith(f" Optimizer params: {slots} ")


def test_subclassed_models_are_listed_as_a_row_of_layers():
    class Own(ganglion.Model):
        def __init__(self):
            super().__init__(name="own")
            self.first = layers.Dense(3, name="first")
            self.second = layers.Dense(2, name="second")

        def call(self, x):
            return self.second(self.first(x))

    model = Own()
    assert "0 (unbuilt)" in summary_text(model)
    model(np.zeros((1, 4), "float32"))
    rows = [line for line in summary_text(model).splitlines() if "(Dense)" in line]
    assert [row.split("│")[2].strip() for row in rows] == ["(1, 3)", "(1, 2)"]
    assert [row.split("│")[3].strip() for row in rows] == ["15", "8"]


def test_shapes_of_layers_with_several_inputs_and_of_dictionaries():
    class Heads(ganglion.layers.Layer):
        def call(self, x):
            return {"head": x[:, 0]}

        def compute_output_shape(self, shape):
            return {"head": (shape[0], shape[2])}

    class Attending(ganglion.Model):
        def __init__(self):
            super().__init__()
            self.attention = ganglion.layers.MultiHeadAttention(2, 2, output_shape=5)
            self.heads = Heads()

        def call(self, x):
            return self.heads(self.attention(x, x))

    model = Attending()
    model(np.ones((1, 3, 2)))
    lines: list[str] = []
    model.summary(print_fn=lines.append)
    assert "(1, 3, 5)" in "".join(lines)
    assert "(1, 5)" in "".join(lines)


def test_a_range_of_layers():
    model = mnist_cnn(ganglion)
    text = summary_text(model, layer_range=("max_pooling2d", "flatten"))
    rows = [line for line in text.splitlines() if "│" in line]
    assert len(rows) == 4
    with pytest.raises(ValueError, match=r"matches no layers\. There are: conv2d"):
        summary_text(model, layer_range=("pool", "flatten"))
    with pytest.raises(ValueError, match="takes the names of two layers"):
        summary_text(model, layer_range=("flatten",))


def test_a_line_that_is_too_short_is_refused():
    with pytest.raises(ValueError, match="a larger `line_length`"):
        summary_text(chain(ganglion), line_length=15)


def test_bytes():
    assert [bytes_text(n) for n in (0, 1023, 1024, 5 * 2**30)] == [
        "0.00 B",
        "1023.00 B",
        "1.00 KB",
        "5.00 GB",
    ]


def keras_text(model, **options):
    kept = []
    model.summary(print_fn=kept.append, **options)
    return "".join(kept)


@pytest.mark.rivals
@pytest.mark.parametrize("make", MODELS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"show_trainable": True},
        {"expand_nested": True},
        {"line_length": 70},
        {"line_length": 131, "expand_nested": True, "show_trainable": True},
    ],
    ids=str,
)
def test_every_line_is_that_of_keras(keras, make, options):
    theirs = keras_text(make(keras), **options)
    ours = summary_text(make(ganglion), **options)
    assert ours.splitlines() == theirs.splitlines()


@pytest.mark.rivals
def test_a_narrow_terminal_narrows_the_table(keras, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert summary_text(mnist_cnn(ganglion)) == keras_text(mnist_cnn(keras))


@pytest.mark.rivals
def test_optimizer_line_is_that_of_keras(keras):
    texts = []
    for module in (ganglion, keras):
        model = chain(module)
        model.compile("adam", "mse")
        model.optimizer.build(model.trainable_variables)
        texts.append(keras_text(model))
    ours, theirs = (
        [line.split("(")[0] for line in text.splitlines()] for text in texts
    )
    assert ours == theirs
