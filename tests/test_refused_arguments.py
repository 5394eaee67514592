"""Every class beside Keras': what its constructor refuses, what its config holds.

Wrong arguments are tried one by one. Where Keras falls over them, by comparing a text
with a number say, ours says in words what is wrong.
"""

import contextlib
import inspect
import io
import json
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

import ganglion

# What a class cannot be made without.
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(["Dense", "RepeatVector", "LSTM", "GRU", "SimpleRNN"], (2,)),
    **dict.fromkeys(["LSTMCell", "GRUCell", "SimpleRNNCell", "Hashing"], (2,)),
    **dict.fromkeys(["Conv1D", "Conv2D", "Conv3D", "ConvLSTM1D", "ConvLSTM2D"], (2, 3)),
    **dict.fromkeys(["Conv1DTranspose", "Conv2DTranspose", "Conv3DTranspose"], (2, 3)),
    **dict.fromkeys(["SeparableConv1D", "SeparableConv2D", "ConvLSTM3D"], (2, 3)),
    **dict.fromkeys(["DepthwiseConv1D", "DepthwiseConv2D", "CategoryEncoding"], (3,)),
    **dict.fromkeys(["Dropout", "AlphaDropout", "GaussianDropout"], (0.5,)),
    **dict.fromkeys(["GaussianNoise", "Rescaling", "SpatialDropout1D"], (0.5,)),
    **dict.fromkeys(["SpatialDropout2D", "SpatialDropout3D"], (0.5,)),
    **dict.fromkeys(["Resizing", "CenterCrop", "Embedding"], (4, 4)),
    **dict.fromkeys(["SensitivityAtSpecificity", "PrecisionAtRecall"], (0.5,)),
    **dict.fromkeys(["SpecificityAtSensitivity", "RecallAtPrecision"], (0.5,)),
    **dict.fromkeys(["MeanIoU", "OneHotMeanIoU"], (3,)),
    **dict.fromkeys(["IoU", "OneHotIoU"], (3, [0])),
    **dict.fromkeys(["ExponentialDecay", "InverseTimeDecay"], (0.1, 2, 0.5)),
    **dict.fromkeys(["PolynomialDecay", "CosineDecay"], (0.1, 2)),
    "CosineDecayRestarts": (0.1, 2),
    "Activation": ("relu",),
    "Dot": (1,),
    "EinsumDense": ("ab,bc->ac", 3),
    "MultiHeadAttention": (2, 3),
    "Permute": ((1, 2),),
    "Reshape": ((2,),),
}
ROOMS = (
    "layers",
    "losses",
    "metrics",
    "optimizers",
    "optimizers.schedules",
    "initializers",
    "regularizers",
    "constraints",
    "callbacks",
)
WRONG: tuple[Any, ...] = ("nonsense", -1, {})
# Accepted on purpose: as Keras 2 took them, or because they can be meant.
TAKEN = {
    ("Reshape", "target_shape"),
    ("RandomZoom", "height_factor"),
    ("RandomZoom", "width_factor"),
    ("AUC", "label_weights"),
    ("InputSpec", "shape"),
}
# Layers of other rooms, which have tests of their own.
LEFT_OUT = ("STFTSpectrogram", "MelSpectrogram", "Lambda", "TensorBoard")


def room_of(library: Any, path: str) -> Any:
    for name in path.split("."):
        library = getattr(library, name)
    return library


def outcome(kind: Any, args: list[Any], options: dict[str, Any]) -> str:
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        try:
            kind(*args, **options)
        except Exception as error:
            return type(error).__name__
    return "taken"


def trials(kind: Any, args: tuple[Any, ...]) -> Iterator[tuple[str, Any, Any, Any]]:
    """Yield the name of an argument, a wrong value, and the arguments with it."""
    parameters = list(inspect.signature(kind.__init__).parameters.values())[1:]
    for number, parameter in enumerate(parameters):
        is_rest = parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        if is_rest or parameter.name in ("name", "dtype", "seed"):
            continue
        for value in WRONG:
            if number < len(args):
                changed = [*args[:number], value, *args[number + 1 :]]
                yield parameter.name, value, changed, {}
            else:
                yield parameter.name, value, list(args), {parameter.name: value}


# What a configuration has beyond Keras' own, so that nothing is lost, or has not.
MORE = {
    "RandomGrayscale": {"seed"},
    "SimpleRNN": {"seed"},
    "CosineSimilarity": {"axis"},
    "SparseCategoricalCrossentropy": {"axis"},
    "Huber": {"delta"},
    "SparseTopKCategoricalAccuracy": {"from_sorted_ids"},
    "Identity": {"gain"},
    "EinsumDense": {"gptq_unpacked_column_size"},
}
LESS = {"Layer": {"activity_regularizer"}, "LayerNormalization": {"rms_scaling"}}


@pytest.mark.rivals
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", [path for path in ROOMS if path != "callbacks"])
def test_configurations_are_plain_and_have_the_keys_of_keras(keras, path):
    theirs, ours = room_of(keras, path), room_of(ganglion, path)
    for name, kind in sorted(vars(theirs).items()):
        is_kind = inspect.isclass(kind) and kind.__name__ == name
        args = ARGUMENTS.get(name, ())
        if not is_kind or outcome(kind, list(args), {}) != "taken":
            continue
        if not hasattr(kind, "get_config") or not hasattr(ours, name):
            continue
        try:
            expected = kind(*args).get_config().keys()
        except NotImplementedError:  # a base class
            continue
        config = getattr(ours, name)(*args).get_config()
        json.dumps(config)
        assert config.keys() - MORE.get(name, set()) <= expected, name
        assert expected - LESS.get(name, set()) <= config.keys(), name


@pytest.mark.rivals
@pytest.mark.parametrize("path", ROOMS)
def test_what_keras_refuses_is_refused(keras, path):
    theirs, ours = room_of(keras, path), room_of(ganglion, path)
    taken = []
    for name, kind in sorted(vars(theirs).items()):
        is_kind = inspect.isclass(kind) and kind.__name__ == name
        if not is_kind or name in LEFT_OUT or not hasattr(ours, name):
            continue
        args = ARGUMENTS.get(name, ())
        if outcome(kind, list(args), {}) != "taken":
            continue
        for argument, value, changed, options in trials(kind, args):
            if (name, argument) in TAKEN or outcome(kind, changed, options) == "taken":
                continue
            if outcome(getattr(ours, name), changed, options) == "taken":
                taken.append(f"{name}({argument}={value!r})")
    assert taken == []
