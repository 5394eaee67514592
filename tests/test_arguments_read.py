"""Every argument of a public function is read, or it is told here why it need not be.

What is accepted and ignored is a wrong answer; it is honoured, or refused by name.
"""

import ast
from collections.abc import Iterator

import numpy as np
import pytest
from folders import PACKAGE

import ganglion as keras

# Programs, the engines of other libraries and the compiler: no API.
PROGRAMS = ("race", "cli", "compiler")

ONE_DEVICE = "says how copies on several devices are joined; there is one device"
HINT = "a hint for speed that changes no result"
INTERFACE = "part of what subclasses and callers expect; not needed in this case"
NO_FLOAT16 = "scales the loss of float16 models, which are not supported"
RUNS_NOTHING = "nothing in a file is ever executed"

# By the file and the function: the arguments that do nothing, and why.
UNREAD = {
    "compat/image_generator/functions.py apply_channel_shift": {
        "channel_axis": "the limits are those of the whole image, whatever the axis"
    },
    "backend/__init__.py identity": {"name": "names of ops are no part of a graph"},
    "training/trainer.py Compilable.compile": {"auto_scale_loss": NO_FLOAT16},
    "training/trainer.py Compilable.compute_loss": {
        "x": INTERFACE,
        "training": INTERFACE,
    },
    "explain/maps.py Explainer.call": {"training": INTERFACE, "mask": INTERFACE},
    "layers/augment.py ImageLayer.get_random_transformation": {
        "data": INTERFACE,
        "training": INTERFACE,
        "seed": INTERFACE,
    },
    "layers/base.py Layer.add_weight": {
        "autocast": "variables are cast where they are used, by what they meet",
        "aggregation": ONE_DEVICE,
    },
    "layers/preprocessing/text_vectorization.py TextVectorization.adapt": {
        "batch_size": "all texts are looked at, however many at a time"
    },
    "layers/rnn/loop.py rnn": {"unroll": HINT},
    "models/model.py Model.call": {"training": "`__call__` tells all layers below"},
    "ops/indexing.py segment_sum": {"sorted": HINT},
    "ops/indexing.py segment_max": {"sorted": HINT},
    "ops/indexing.py top_k": {"sorted": "sorted results are right in both cases"},
    "optimizers/base.py Optimizer.add_variable": {"aggregation": ONE_DEVICE},
    "saving/__init__.py load_model": {"safe_mode": RUNS_NOTHING},
    "serialization.py deserialize_keras_object": {"safe_mode": RUNS_NOTHING},
    "symbolic.py KerasTensor.__init__": {
        "record_history": "a call notes its outputs, not the tensor its call"
    },
    "utils/row_dataset.py RowDataset.batch": {"args": HINT, "kwargs": HINT},
    "utils/row_dataset.py RowDataset.map": {"args": HINT, "kwargs": HINT},
    "utils/row_dataset.py RowDataset.shuffle": {
        "args": "all rows are shuffled at once, by the seed of the model",
        "kwargs": "all rows are shuffled at once, by the seed of the model",
    },
    "utils/row_dataset.py RowDataset.cache": {"args": HINT, "kwargs": HINT},
    "utils/row_dataset.py RowDataset.prefetch": {"args": HINT, "kwargs": HINT},
    "variables.py Variable.__init__": {
        "autocast": "variables are cast where they are used, by what they meet",
        "aggregation": ONE_DEVICE,
        "synchronization": ONE_DEVICE,
    },
}
# Methods that a subclass must define with all arguments, whatever it does with them.
OVERRIDES = ("build", "compute_mask", "transform_")


def functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Yield the public functions and methods of a module, with their names."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            yield node.name, node
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            for item in node.body:
                is_method = isinstance(item, ast.FunctionDef)
                if is_method and (item.name == "__init__" or item.name[0] != "_"):
                    yield f"{node.name}.{item.name}", item


def unread(function: ast.FunctionDef) -> set[str]:
    """Return the arguments that a function does not read."""
    body = [item for item in function.body if not isinstance(item, ast.Expr)]
    if all(isinstance(item, (ast.Raise, ast.Pass)) for item in body):
        return set()  # not written here
    arguments = function.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    every += [item for item in (arguments.vararg, arguments.kwarg) if item is not None]
    names = {item.arg for item in every if not item.arg.startswith("_")}
    read = {
        node.id
        for statement in function.body
        for node in ast.walk(statement)
        if isinstance(node, ast.Name)
    }
    return set() if "locals" in read else names - read - {"self", "cls"}


def unread_arguments() -> dict[str, set[str]]:
    every = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        where = path.relative_to(PACKAGE).as_posix()
        if where.startswith(PROGRAMS) or path.name in ("images/training.py",):
            continue
        for name, function in functions(ast.parse(path.read_text())):
            method = name.rpartition(".")[2]
            if method.startswith(("on_", *OVERRIDES)):
                continue
            names = unread(function)
            if names:
                every[f"{where} {name}"] = names
    return every


def test_every_argument_is_read_or_explained():
    unexplained = {
        name: sorted(arguments - UNREAD.get(name, {}).keys())
        for name, arguments in unread_arguments().items()
        if arguments - UNREAD.get(name, {}).keys()
    }
    assert unexplained == {}, "honour these arguments, or refuse them by name"


def test_the_check_sees_an_argument_that_is_ignored():
    code = "def f(a, b, *, c=None, **kwargs):\n    return a + len(kwargs)\n"
    (function,) = ast.parse(code).body
    assert unread(function) == {"b", "c"}


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: keras.ops.one_hot(np.array([1]), 3, sparse=True), "`sparse=True`"),
        (lambda: keras.ops.moments(np.ones(3), 0, synchronized=True), "synchronized"),
        (lambda: keras.ops.unstack(np.ones((2, 3)), num=3), "unstack.*3"),
        (
            lambda: keras.models.clone_model(keras.Sequential(), recursive=True),
            "`recursive`",
        ),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(call, text):
    with pytest.raises(ValueError, match=text):
        call()


def test_clone_model_knows_its_arguments_and_compiles():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    assert not keras.models.clone_model(model).compiled
    model.compile(keras.optimizers.SGD(0.25), "mse", metrics=["mae"])
    clone = keras.models.clone_model(model)
    assert clone.compiled
    assert float(clone.optimizer.learning_rate) == 0.25
    assert clone.optimizer is not model.optimizer
    assert sorted(clone.fit(np.ones((2, 2)), np.ones(2), verbose=0).history) == [
        "loss",
        "mae",
    ]
    with pytest.raises(TypeError, match="does not know wrong"):
        keras.models.clone_model(model, wrong=1)


def test_print_tensor_prints_or_says_that_it_does_not(capsys):
    keras.backend.print_tensor(np.ones(2), message="here:")
    assert "here: [1. 1.]" in capsys.readouterr().err
    with pytest.warns(UserWarning, match="prints nothing inside of a model"):
        keras.backend.print_tensor(keras.Input((2,)))
