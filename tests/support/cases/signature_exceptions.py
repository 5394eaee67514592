"""Intended differences of our signatures from Keras', each with its reason.

Everything else must be equal to Keras 3.15, parameter by parameter: names, order,
kinds and defaults.
"""

_NOT_IN_KERAS_3 = "a Keras 2 name that Keras 3 removed; old scripts use it"
_HIDDEN_BY_KERAS = "Keras hides its real signature behind *args, **kwargs"

_DEFAULT_OF_KERAS_2 = "`pool_size` has Keras 2's default, which old scripts rely on"

CLASSES: dict[str, str] = {
    "Variable": "no `layout` and **kwargs: those are for distribution over devices",
    "losses.Reduction": "Keras 2's names of the ways to reduce",
    "KerasTensor": "no **kwargs: Keras ignores them",
    "Sequential": _HIDDEN_BY_KERAS,
    **{
        f"layers.{kind}{rank}D": _DEFAULT_OF_KERAS_2
        for kind in ("AveragePooling", "AvgPool")
        for rank in (1, 2, 3)
    },
    "layers.Deconvolution2D": _NOT_IN_KERAS_3,
    "layers.Deconvolution3D": _NOT_IN_KERAS_3,
    "layers.ThresholdedReLU": _NOT_IN_KERAS_3,
    "layers.GroupedQueryAttention": "Keras' class has this name, but is shown as Group",
    "callbacks.EpochLogger": "ours: prints the published one-line-an-epoch form",
}

METHODS_THAT_DIFFER: dict[str, str] = {
    "Layer.add_weight": "takes its arguments by position too, as Keras 2 did",
    "Model.compile": "takes `sample_weight_mode=` and its kin, as Keras 2 did",
    "Model.fit": "has `check=True` besides Keras' arguments: it names NaN in the data",
}

FUNCTIONS: dict[str, str] = {}
