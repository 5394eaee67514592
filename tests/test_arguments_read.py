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
RUNS_NOTHING = "nothing in a file is ever executed"

# By the file and the function: the arguments that do nothing, and why.
UNREAD = {
    "wrappers/scikit_learn.py BaseWrapper.get_params": {
        "deep": "a function that builds a model has no parameters of its own"
    },
    "compat/image_generator/draws.py Draws.next": {"ordered": INTERFACE},
    "compat/image_generator/functions.py apply_channel_shift": {
        "channel_axis": "the limits are those of the whole image, whatever the axis"
    },
    "compat/tensorflow/arrays.py argsort": {"stable": "equal numbers stay in order"},
    "backend/__init__.py identity": {"name": "names of ops are no part of a graph"},
    "training/trainer.py Trainer.compute_loss": {
        "x": INTERFACE,
        "training": INTERFACE,
    },
    "explain/maps.py Explainer.call": {"training": INTERFACE, "mask": INTERFACE},
    "explain/maps.py WithMaps.call": {"training": INTERFACE, "mask": INTERFACE},
    "serve/server.py Server.handle_exit": {"sig": INTERFACE, "frame": INTERFACE},
    "layers/augmentation/base.py ImageLayer.get_random_transformation": {
        "data": INTERFACE,
        "training": INTERFACE,
        "seed": INTERFACE,
    },
    "layers/augmentation/colors.py RandomColorJitter.get_random_transformation": {
        "training": INTERFACE,
        "seed": "as in Keras: each change draws when it is made",
    },
    "layers/augmentation/sizes.py Resizing.get_random_transformation": {
        "training": INTERFACE,
        "seed": INTERFACE,
    },
    "layers/augmentation/sizes.py CenterCrop.get_random_transformation": {
        "training": INTERFACE,
        "seed": INTERFACE,
    },
    "ops/boxes.py pad": {
        "height": "borders above and at the left move boxes, whatever the size",
        "width": "borders above and at the left move boxes, whatever the size",
    },
    "layers/compat_methods.py CompatMethods.train": {
        "mode": "as in Keras on PyTorch: `training=` says how a layer runs"
    },
    "layers/base.py Layer.add_weight": {
        "autocast": "variables are cast where they are used, by what they meet",
        "aggregation": ONE_DEVICE,
    },
    "layers/preprocessing/text_vectorization.py TextVectorization.adapt": {
        "batch_size": "all texts are looked at, however many at a time"
    },
    "layers/rnn/loop.py rnn": {"unroll": HINT},
    "ops/nn.py dot_product_attention": {"flash_attention": HINT},
    "ops/nn.py moments": {"synchronized": ONE_DEVICE},
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
_FIRST = "a trial draws every value: there is no first one that takes the defaults"
UNREAD |= {
    f"many/spaces.py HyperParameters.{kind}": {"default": _FIRST} | more
    for kind, more in {
        "Int": {},
        "Float": {},
        "Boolean": {},
        "Choice": {"ordered": HINT},
    }.items()
}
UNREAD |= {
    "__init__.py unload_ipython_extension": {"ipython": INTERFACE},
    "compat/aliases.py AliasFinder.find_spec": {"path": INTERFACE, "target": INTERFACE},
    "compat/tensorflow/data/dataset.py Dataset.with_options": {"options": HINT},
    "backend/old_ops.py is_sparse": {"tensor": "no tensor is sparse"},
    "compat/jax/functions.py unchanged": {"args": HINT, "kwargs": HINT},
    "compat/jax/functions.py devices": {"backend": ONE_DEVICE},
    "compat/tensorflow/generators.py log_uniform_candidate_sampler": {
        "num_true": "the shape of `true_classes` says it",
    },
    "compat/tensorflow/control.py map_fn": {"infer_shape": "shapes are exact"},
    "compat/tensorflow/control.py while_loop": {"shape_invariants": "shapes are exact"},
    "compat/tensorflow/control.py case": {
        "exclusive": "a check that several conditions do not hold, of TensorFlow 1",
        "strict": HINT,
    },
    "compat/tensorflow/data/experimental.py prefetch_to_device": {"device": ONE_DEVICE},
    "compat/tensorflow/data/grouping.py load": {
        "element_spec": "the file knows the types of its elements"
    },
    "compat/tensorflow/host.py numpy_function": {"stateful": HINT},
    "compat/tensorflow/encodings.py encode_png": {"compression": "loses nothing"},
    "compat/tensorflow/encodings.py encode_jpeg": {
        "format": "the channels of the picture"
    },
    "compat/tensorflow/objects.py TensorArray.__init__": {
        "clear_after_read": HINT,
        "infer_shape": "shapes are exact",
    },
    "compat/tensorflow/runtime.py Session.__init__": {"args": HINT, "kwargs": HINT},
    "compat/tensorflow/strategies.py MirroredStrategy.__init__": {
        "cross_device_ops": ONE_DEVICE
    },
    "compat/tensorflow/summaries.py create_file_writer": {
        "flush_millis": HINT,
        "max_queue": HINT,
    },
    "compat/tensorflow/data/sources.py sample_from_datasets": {
        "rerandomize_each_iteration": "each pass draws anew"
    },
    "backend/__init__.py function": {"name": "names of ops are no part of a graph"},
    "compat/tensorflow/data/text_files.py TextLineDataset": {
        "buffer_size": HINT,
        "num_parallel_reads": HINT,
    },
    "compat/tensorflow/data/text_files.py make_csv_dataset": {
        "num_parallel_reads": HINT,
        "num_rows_for_inference": "all rows are looked at",
        "prefetch_buffer_size": HINT,
        "sloppy": HINT,
    },
    "layers/base.py Layer.rematerialized_call": {
        "args": INTERFACE,
        "kwargs": INTERFACE,
    },
    "layers/dense.py Lambda.from_config": {"safe_mode": RUNS_NOTHING},
    "models/model.py Model.get_quantization_layer_structure": {"mode": INTERFACE},
    "compat/tensorflow/encodings.py decode_image": {
        "expand_animations": "of an animation, the first picture is read"
    },
    "compat/tensorflow/devices.py has_gpu": {"args": INTERFACE, "kwargs": INTERFACE},
    "compat/tensorflow/objects.py function": {
        "autograph": HINT,
        "experimental_relax_shapes": HINT,
        "input_signature": "each signature is traced when it comes",
        "jit_compile": HINT,
        "reduce_retracing": HINT,
    },
    "distillation/distiller.py Distiller.call": {"mask": INTERFACE},
    "distillation/distiller.py Distiller.compute_loss": {
        "sample_weight": "as in Keras"
    },
    "distillation/losses.py FeatureDistillation.compute_loss": {"kwargs": INTERFACE},
    "distillation/losses.py LogitsDistillation.compute_loss": {"kwargs": INTERFACE},
    "distribution.py DataParallel.get_tensor_layout": {"path": INTERFACE},
    "gradients.py GradientTape.batch_jacobian": {
        "experimental_use_pfor": HINT,
        "parallel_iterations": HINT,
    },
    "gradients.py GradientTape.jacobian": {
        "experimental_use_pfor": HINT,
        "parallel_iterations": HINT,
    },
    "ops/order/segments.py segment_max": {"sorted": HINT},
    "ops/order/segments.py segment_min": {"sorted": HINT},
    "ops/order/segments.py segment_prod": {"sorted": HINT},
    "ops/order/segments.py segment_sum": {"sorted": HINT},
    "ops/order/sorting.py isin": {"assume_unique": HINT},
    "ops/order/sorting.py unique": {"sorted": "sorted results are right in both cases"},
    "training/step_methods.py StepMethods.compute_metrics": {"x": INTERFACE},
    "training/step_methods.py StepMethods.make_predict_function": {"force": INTERFACE},
    "training/step_methods.py StepMethods.make_test_function": {"force": INTERFACE},
    "training/step_methods.py StepMethods.make_train_function": {"force": INTERFACE},
}
# TensorFlow's functions name their ops, which are no part of a graph here, and take
# hints on how to run.
TENSORFLOW = {
    "name",
    "deterministic",
    "use_locking",  # of variables that several workers write
    "session_config",
    "num_parallel_calls",
    "options",  # of its runtime
    "alg",  # random numbers are ours in any case
    "summarize",  # how much of a tensor a message shows
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
    unexplained = {}
    for name, arguments in unread_arguments().items():
        known = set(UNREAD.get(name, {}))
        if name.startswith(("compat/tensorflow/", "backend/")):
            known |= TENSORFLOW
        if arguments - known:
            unexplained[name] = sorted(arguments - known)
    assert unexplained == {}, "honour these arguments, or refuse them by name"


def test_the_check_sees_an_argument_that_is_ignored():
    code = "def f(a, b, *, c=None, **kwargs):\n    return a + len(kwargs)\n"
    (function,) = ast.parse(code).body
    assert unread(function) == {"b", "c"}


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: keras.ops.one_hot(np.array([1]), 3, sparse=True), "`sparse=True`"),
        (lambda: keras.ops.unstack(np.ones((2, 3)), num=3), "unstack.*3"),
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
    with pytest.raises(ValueError, match="does not know wrong"):
        keras.models.clone_model(model, wrong=1)


def test_print_tensor_prints_or_says_that_it_does_not(capsys):
    keras.backend.print_tensor(np.ones(2), message="here:")
    assert "here: [1. 1.]" in capsys.readouterr().err
    with pytest.warns(UserWarning, match="prints nothing inside of a model"):
        keras.backend.print_tensor(keras.Input((2,)))
