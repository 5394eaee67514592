"""ONNX files: onnxruntime computes what the model predicts, for any number of rows."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx_runs
import pytest
from exported_models import made, rows_for
from layer_cases import CASES

import ganglion as keras
from ganglion import layers, recipes
from ganglion.compiler.ir.graph import Graph, Input, computed
from ganglion.compiler.ir.table import OPS
from ganglion.export import export_model
from ganglion.export.onnx.symbols import RowsError, Twins

pytest.importorskip("onnx", reason="onnx is not installed")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

TOLERANCE = 1e-4


def inputs_of(model: Any, rows: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    arrays = []
    for tensor in model.inputs:
        shape = (rows, *tensor.shape[1:])
        is_whole = "int" in tensor.dtype
        drawn = rng.integers(0, 5, shape) if is_whole else rng.normal(size=shape)
        arrays.append(drawn.astype(tensor.dtype))
    return arrays


def check(
    model: Any, folder: Path, rows: tuple[int, ...] = (1, 3), **options: Any
) -> None:
    """Compare a file with calls of the model."""
    export_model(model, folder / "m.onnx", **options)
    for count in rows:
        arrays = inputs_of(model, count)
        outputs = onnx_runs.run(folder / "m.onnx", arrays)
        given = arrays if len(arrays) > 1 else arrays[0]
        expected = model(given, training=False)
        for output, wanted in zip(outputs, keras.tree.flatten(expected), strict=True):
            assert output.dtype == wanted.dtype
            np.testing.assert_allclose(output, wanted, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("name", ["efficient", "lstm", "transformer", "text", "odds"])
def test_small_models_predict_the_same(name: str, tmp_path: Path) -> None:
    model = made(name)
    export_model(model, tmp_path / "m.onnx")
    for rows in (1, 4):
        arrays, expected = rows_for(model, rows)
        outputs = onnx_runs.run(tmp_path / "m.onnx", arrays)
        for output, wanted in zip(outputs, expected, strict=True):
            np.testing.assert_allclose(output, wanted, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("name", recipes.RECIPES)
def test_every_recipe(name: str, tmp_path: Path) -> None:
    check(recipes.build(recipes.still(recipes.get(name))), tmp_path, rows=(2,))


@pytest.mark.more
@pytest.mark.parametrize("recipe", recipes.NETWORKS, ids=lambda recipe: recipe.name)
def test_ordinary_networks(recipe: Any, tmp_path: Path) -> None:
    check(recipes.build(recipes.still(recipe)), tmp_path)


@pytest.mark.more
def test_efficientnet_lite0(tmp_path: Path) -> None:
    check(keras.applications.EfficientNetLite0(weights=None), tmp_path, rows=(1, 2))


PREDICTING = [case for case in CASES if not case.training]


@pytest.mark.sampled(8)
@pytest.mark.parametrize("case", PREDICTING, ids=lambda case: case.id)
def test_every_layer(case: Any, tmp_path: Path) -> None:
    dtype = "int32" if case.classes else None
    inputs = [keras.Input(shape[1:], dtype=dtype) for shape in case.shapes]
    given = inputs if len(inputs) > 1 else inputs[0]
    check(keras.Model(given, case.call(case.make(layers), given)), tmp_path)


# ---- every op ------------------------------------------------------------------------

NOT_IN_ONNX = {"conv_kernel", "left_shift", "max_pool_back", "nextafter", "right_shift",
               "shuffle", "sum_pool_back"}  # fmt: skip


def op_file(graph: Graph) -> bytes:
    import onnx
    from onnx import helper

    from ganglion.export.onnx import builder
    from ganglion.export.onnx.graph import GraphWriter

    b = builder.Builder()
    b.rows_of = "x0"
    names = {x: x.name for x in graph.inputs}
    writer = GraphWriter(graph, Twins(graph, graph), b, names)
    writer.write()
    value = graph.outputs["y"]
    b.emit("Identity", writer.name(value), name="y")
    ends = [builder.value_info(x.name, x.dtype, x.shape) for x in graph.inputs]
    outputs = [builder.value_info("y", value.dtype, value.shape)]
    nodes, constants = b.used(["y"])
    proto = helper.make_model(
        helper.make_graph(nodes, "g", ends, outputs, constants),
        opset_imports=[builder.opset(18)],
        ir_version=8,
    )
    onnx.checker.check_model(proto, full_check=True)
    return proto.SerializeToString()


@pytest.mark.parametrize("name", sorted(OPS))
def test_every_op_means_the_same(name: str) -> None:
    arrays, attrs = OPS[name].domain(np.random.default_rng(0))
    arrays = [np.asarray(a, "f4") if a.dtype == "f8" else np.asarray(a) for a in arrays]
    attrs = {**attrs, "dtype": "float32"} if attrs.get("dtype") == "float64" else attrs
    inputs = [Input(f"x{i}", a.shape, a.dtype) for i, a in enumerate(arrays)]
    value = OPS[name](*inputs, **attrs)
    graph = Graph.of("g", inputs, {"y": value})
    if name in NOT_IN_ONNX:
        with pytest.raises(ValueError, match=f"uses {name}, which ONNX does not have"):
            op_file(graph)
        return
    (output,) = onnx_runs.run(op_file(graph), arrays)
    expected = computed(value, arrays)
    assert output.dtype == expected.dtype
    if name != "random_uniform":
        np.testing.assert_allclose(output, expected, rtol=2e-6, atol=2e-6)


# ---- what is in a file ---------------------------------------------------------------


def test_the_file_is_what_others_would_write(tmp_path: Path) -> None:
    """Convolutions, norms and activations become few operators, channels first."""
    import onnx

    export_model(made("efficient"), tmp_path / "m.onnx")
    proto = onnx.load(tmp_path / "m.onnx")
    kinds = [node.op_type for node in proto.graph.node]
    assert kinds.count("Transpose") == 1
    assert kinds.count("Conv") == kinds.count("Clip") + 2 == 7
    assert {"Gemm", "Softmax"} < set(kinds)
    assert proto.opset_import[0].version == 18
    (entry,) = proto.graph.input
    sizes = [d.dim_param or d.dim_value for d in entry.type.tensor_type.shape.dim]
    assert sizes == ["batch", 24, 24, 3]


def test_lookups_of_words_and_numbers_are_in_the_file(tmp_path: Path) -> None:
    animals = layers.StringLookup(vocabulary=["cat", "dog", "hen"])
    years = layers.IntegerLookup(vocabulary=[1999, 2024], mask_token=0)
    word = keras.Input((2,), dtype="string", name="animal")
    year = keras.Input((1,), dtype="int64", name="year")
    number = keras.Input((3,), name="number")
    parts = [
        layers.Flatten()(layers.Embedding(4, 3)(animals(word))),
        layers.CategoryEncoding(4, "one_hot")(years(year)),
        number,
    ]
    model = keras.Model(
        [word, year, number], layers.Dense(2)(layers.Concatenate()(parts))
    )
    told = export_model(model, tmp_path / "m.onnx")
    assert not told.notes
    arrays = [
        np.array([["cat", "hen"], ["cow", "dog"], ["[UNK]", ""]]),
        np.array([[2024], [0], [7]]),
        np.ones((3, 3), "float32"),
    ]
    expected = model.predict(arrays, verbose=0)
    words = np.array(arrays[0], dtype=object)
    (output,) = onnx_runs.run(tmp_path / "m.onnx", [words, *arrays[1:]])
    np.testing.assert_allclose(output, expected, rtol=1e-5)


def test_a_subclass_with_keras_signature(tmp_path: Path) -> None:
    class Own(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = layers.Dense(2)

        def call(self, inputs: Any) -> Any:
            return keras.ops.relu(self.dense(inputs)) - keras.ops.sum(inputs)

    class Rowwise(Own):
        def call(self, inputs: Any) -> Any:
            return keras.ops.cumsum(self.dense(inputs), axis=1)

    x = np.arange(12, dtype="float32").reshape(4, 3)
    signature = [keras.InputSpec(dtype="float32", shape=(None, 3))]
    for cls in (Own, Rowwise):  # the first mixes the rows of a batch
        model = cls()
        model(x)
        model.export(
            tmp_path / "own.onnx",
            format="onnx",
            verbose=False,
            input_signature=signature,
        )
        (output,) = onnx_runs.run(tmp_path / "own.onnx", [x])
        np.testing.assert_allclose(output, model(x), rtol=1e-5)


class Sums(keras.Model):
    """Takes a tensor, or any structure of two."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = layers.Dense(2)

    def call(self, inputs: Any) -> Any:
        return self.dense(sum(keras.tree.flatten(inputs)))


@pytest.mark.parametrize(
    "structure",
    [lambda x: x, lambda x: [x, x], lambda x: (x,), lambda x: {"b": x, "a": x}],
)
def test_a_subclass_that_was_called_needs_no_signature(
    structure: Any, tmp_path: Path
) -> None:
    model, x = Sums(), np.arange(6, dtype="float32").reshape(2, 3)
    expected = model(structure(x))
    model.export(tmp_path / "m.onnx", format="onnx", verbose=False)
    arrays = keras.tree.flatten(structure(x))
    (output,) = onnx_runs.run(tmp_path / "m.onnx", arrays)
    np.testing.assert_allclose(output, expected, rtol=1e-5)


class Difference(keras.Model):
    """Takes two tensors as two arguments."""

    def build(self, right_shape: Any, left_shape: Any) -> None:
        self.built = True

    def call(self, left: Any, right: Any, training: bool | None = None) -> Any:
        return left - right


def test_a_subclass_of_several_arguments(tmp_path: Path) -> None:
    x, y = np.ones((2, 3), "float32"), np.full((2, 3), 5, "float32")
    model, spec = Difference(), keras.InputSpec(shape=(None, 3))
    model(x, y)
    for signature in (None, [spec, spec]):
        model.export(
            tmp_path / "m.onnx",
            format="onnx",
            verbose=False,
            input_signature=signature,
        )
        (output,) = onnx_runs.run(tmp_path / "m.onnx", [x, y])
        np.testing.assert_allclose(output, x - y)


def test_arguments_whose_shapes_nobody_noted_need_a_signature(tmp_path: Path) -> None:
    class Unbuilt(keras.Model):
        def call(self, left: Any, right: Any) -> Any:
            return left - right

    model = Unbuilt()
    model(np.ones((2, 3)), np.ones((2, 3)))
    with pytest.raises(ValueError, match="are not known"):
        model.export(tmp_path / "m.onnx", format="onnx", verbose=False)


def test_inputs_go_by_the_names_of_a_signature(tmp_path: Path) -> None:
    pixels, ages = keras.Input((3,), name="a"), keras.Input((3,), name="b")
    for inputs, names in ((pixels, ["pixels"]), ([pixels, ages], ["pixels", "ages"])):
        model = keras.Model(
            inputs, layers.Add()([pixels, pixels, ages][: len(names) + 1])
        )
        model.export(
            tmp_path / "m.onnx",
            format="onnx",
            verbose=False,
            input_signature=[keras.InputSpec(shape=(None, 3), name=n) for n in names],
        )
        ports = onnx_runs.session(tmp_path / "m.onnx").get_inputs()
        assert [port.name for port in ports] == names


def test_inputs_and_outputs_keep_names_that_the_writer_uses(tmp_path: Path) -> None:
    names = ("constant_0", "Add_1", "weight_2", "Gemm_0")
    inputs = [keras.Input((3,), name=name) for name in names]
    total = layers.Add(name="Identity_0")(inputs)
    outputs = [layers.Dense(2, name="constant_1")(total), total]
    check(keras.Model(inputs, outputs), tmp_path)
    ports = onnx_runs.session(tmp_path / "m.onnx").get_inputs()
    assert [port.name for port in ports] == list(names)


def test_keras_signatures_are_understood(tmp_path: Path) -> None:
    """All that Keras documents for `input_signature`, and its option of ONNX."""
    model = keras.Sequential([keras.Input((3,)), layers.Dense(2)])
    x = np.ones((2, 3), "float32")
    for spec in (
        SimpleNamespace(dtype=np.dtype("float32"), shape=(None, 3)),  # of another
        keras.InputSpec(shape=(None, 3)),
        keras.KerasTensor((None, 3)),
        x,
    ):
        for version in (None, 18, 20, 22):
            model.export(
                tmp_path / "m.onnx",
                format="onnx",
                verbose=False,
                input_signature=[spec],
                opset_version=version,
            )
            (output,) = onnx_runs.run(tmp_path / "m.onnx", [x])
            np.testing.assert_allclose(output, model(x), rtol=1e-5)
    with pytest.raises(ValueError, match="from 18 to 22, got 11"):
        model.export(tmp_path / "m.onnx", opset_version=11)


def test_short_floats_are_written_as_float32(tmp_path: Path) -> None:
    model = keras.Sequential(
        [keras.Input((4,)), layers.Dense(3, dtype="mixed_float16"), layers.Dense(2)]
    )
    export_model(model, tmp_path / "m.onnx")
    x = np.ones((2, 4), "float32")
    (output,) = onnx_runs.run(tmp_path / "m.onnx", [x])
    np.testing.assert_allclose(output, model(x), rtol=1e-2, atol=1e-2)


class Mean(layers.Layer):
    """The mean over the rows of a batch."""

    def call(self, x: Any) -> Any:
        return x - keras.ops.mean(x, axis=0, keepdims=True)


class Positions(layers.Layer):
    """Something for each row that is another in each."""

    def call(self, x: Any) -> Any:
        return x + keras.ops.cast(keras.ops.arange(x.shape[0]), x.dtype)[:, None]


def test_sizes_of_the_batch_are_found_at_run_time(tmp_path: Path) -> None:
    check(keras.Sequential([keras.Input((4,)), Mean()]), tmp_path, rows=(1, 5))
    check(keras.Sequential([keras.Input((4,)), Positions()]), tmp_path, rows=(1, 5))


# ---- what cannot be written ----------------------------------------------------------


class Sorted(layers.Layer):
    def call(self, x: Any) -> Any:
        return keras.ops.sort(x, axis=-1)


class Fewer(layers.Layer):
    """Computes something else where there are many rows."""

    def call(self, x: Any) -> Any:
        return x * 2 if x.shape[0] > 11 else keras.ops.exp(keras.ops.tanh(x))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: [keras.Input((4,)), Sorted(name="by_size")], "by_size.* calls .*sort"),
        (lambda: [keras.Input((4,)), Fewer()], "other numbers of rows"),
        (
            lambda: [keras.Input(batch_shape=(1, 3, 2)), layers.LSTM(2, stateful=True)],
            "lstm.* is stateful",
        ),
    ],
)
def test_what_cannot_be_exported_is_named_and_leaves_nothing(
    make: Any, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        export_model(keras.Sequential(make()), tmp_path / "a.onnx")
    assert not list(tmp_path.iterdir())


def test_rows_of_a_batch_that_no_file_can_hold() -> None:
    def graph(rows: int) -> Graph:
        x = Input("x", (rows, rows * rows), "float32")
        return Graph.of("g", [x], {"y": OPS["exp"](x)})

    twins = Twins(graph(11), graph(13))
    with pytest.raises(RowsError, match="121 for 11 rows, 169 for 13"):
        twins.shape(graph_input(twins))


def graph_input(twins: Twins) -> Any:
    return next(value for value in twins._twin if isinstance(value, Input))
