"""Where our signatures differ from Keras' on purpose, each with its reason.

Keys are "module.Class" or "module.Class.method"; everything else must be equal to
Keras 3.15, parameter by parameter: names, order, kinds and defaults.
"""

_NOT_IN_KERAS_3 = "a Keras 2 name that Keras 3 removed; old scripts use it"
_HIDDEN_BY_KERAS = "Keras hides its real signature behind *args, **kwargs"

EXCEPTIONS: dict[str, str] = {
    "Variable": "no `layout` and **kwargs: those are for distribution over devices",
    "KerasTensor": "no **kwargs: Keras ignores them",
    "Sequential": _HIDDEN_BY_KERAS,
    "Layer.add_weight": "takes its arguments by position too, as Keras 2 did",
    "layers.Deconvolution2D": _NOT_IN_KERAS_3,
    "layers.Deconvolution3D": _NOT_IN_KERAS_3,
    "layers.ThresholdedReLU": _NOT_IN_KERAS_3,
    "optimizers.Optimizer": _HIDDEN_BY_KERAS,
    "losses.LossFunctionWrapper": "private in Keras; the base of every loss here",
    "callbacks.EpochLogger": "ours: prints the published one-line-an-epoch form",
    "callbacks.MonitorCallback": "private in Keras; the base of what watches a metric",
    "Model.fit": "has `check=True` besides Keras' arguments: it names NaN in the data",
}
