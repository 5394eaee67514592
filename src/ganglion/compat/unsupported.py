"""Names of Keras that Ganglion does not have: each with the reason and the way out.

>>> print(explain("ganglion.layers", "CuDNNGRU"))
keras.layers.CuDNNGRU: cuDNN is not used, the loop over time is compiled. Use LSTM or \
GRU, which are as fast.
>>> print(explain("ganglion.layers", "Dens", ["Dense", "Dropout"]))
keras.layers.Dens: there is no such name. Did you mean 'Dense'?
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from functools import cache

_OWN_LAYER = "Write it as a Layer with `ganglion.ops`."

# A reason with the way out, and the names it holds for: a module and what is in it, or
# a module alone for all that is in it.
_TABLE = {
    "cuDNN is not used, the loop over time is compiled. Use LSTM or GRU, which are as "
    "fast.": (
        "layers: CuDNNLSTM CuDNNGRU",
        "layers.cudnn_recurrent",
    ),
    "it is not there yet.": ("backend: ctc_batch_cost ctc_decode",),
    "this image augmentation is not there yet. RandomFlip, RandomZoom, RandomRotation, "
    "RandomTranslation, RandomShear, RandomCrop, RandomContrast, RandomBrightness and "
    "RandomErasing are; or write it as a Layer with `ganglion.ops`.": (
        "layers: RandomHeight RandomWidth RandomColorJitter "
        "RandomHue RandomSaturation RandomSharpness "
        "RandomGaussianBlur RandomGrayscale RandomInvert RandomPerspective "
        "RandomPosterization RandomElasticTransform RandomColorDegeneration "
        "AugMix AutoContrast CutMix MixUp RandAugment Solarization Equalization "
        "CLAHE MaxNumBoundingBoxes Pipeline",
    ),
    "it makes a tf.data pipeline, which Ganglion does not read. Pass arrays, a "
    "generator or a `keras.utils.PyDataset` to `fit`.": (
        "utils: audio_dataset_from_directory split_dataset",
    ),
    "of the pretrained models, only EfficientNetLite0 is there. Save another in Keras "
    '(`model.save("model.keras")`) and load the file here.': ("applications",),
    "models of other frameworks do not run here. Save the model in Keras "
    '(`model.save("model.keras")`) and load the file here.': (
        "layers: TFSMLayer TorchModuleWrapper FlaxLayer JaxLayer",
    ),
    "one machine with one device trains here. Use the model itself.": (
        "utils: multi_gpu_model",
        "distribution",
    ),
    "Ganglion does not wrap scikit-learn. Call `fit` and `predict` of the model.": (
        "wrappers",
    ),
    "YAML files are not read, because they may run code. Use `to_json` and "
    "`model_from_json`.": ("models: model_from_yaml",),
    "weights are float32 or float64. Leave it out; for speed on a GPU there is "
    '`mixed_precision.set_global_policy("mixed_bfloat16")`.': (
        "quantizers",
        "optimizers: LossScaleOptimizer",
    ),
    f"Keras 2 dropped this layer. {_OWN_LAYER}": (
        "layers: Merge MaxoutDense Highway TimeDistributedDense",
    ),
    f"it is not there yet. {_OWN_LAYER}": (
        "layers: SpectralNormalization LocallyConnected1D "
        "LocallyConnected2D MelSpectrogram STFTSpectrogram",
    ),
    "images are not resized or cut into patches by ops yet. Use UpSampling2D, "
    "pooling layers, `ops.reshape` and `ops.transpose`.": ("ops.image", "ops: image"),
    "a graph here has no sorting. Prepare the order in NumPy.": (
        "ops: sort argsort searchsorted unique median quantile percentile",
    ),
    "it worked on TensorFlow sessions and graphs, which Ganglion does not have. Write "
    "a Layer or a loss with `ganglion.ops`, and call the model on arrays to look "
    "inside.": (
        "backend: function gradients placeholder get_session set_session tf "
        "tensorflow_backend manual_variable_initialization py_all is_placeholder",
        "estimator",
    ),
    "Keras 1 had it. Images are always (rows, columns, channels): leave it out.": (
        "backend: image_dim_ordering set_image_dim_ordering",
    ),
    "gradients are not taken by hand here: `fit` and `train_on_batch` differentiate "
    "the loss. Override `compute_loss`, or call `add_loss` in a layer.": (
        "GradientTape",
        "StatelessScope",
    ),
}


@cache
def _reasons() -> dict[str, str]:
    reasons: dict[str, str] = {}
    for reason, entries in _TABLE.items():
        for entry in entries:
            module, _, names = entry.partition(":")
            full = [f"{module}.{name}" for name in names.split()] or [module]
            reasons |= dict.fromkeys(full, reason)
    return reasons


def unsupported_reason(package: str, name: str) -> str | None:
    """Return why a name is unsupported, None for one that is not known at all."""
    full = f"{package}.{name}".removeprefix("ganglion.")
    while full and full not in _reasons():
        full = full.rpartition(".")[0]
    return _reasons().get(full)


def explain(package: str, name: str, known: Iterable[str] = ()) -> str:
    """Return why a name is unsupported and what to do, or which one may be meant."""
    keras_name = f"{package}.{name}".replace("ganglion", "keras", 1)
    why = unsupported_reason(package, name)
    if why is None:
        public = [other for other in known if not other.startswith("_")]
        similar = difflib.get_close_matches(name, public, n=2, cutoff=0.7)
        meant = " or ".join(map(repr, similar))
        why = "there is no such name." + (f" Did you mean {meant}?" if similar else "")
    return f"{keras_name}: {why}"
