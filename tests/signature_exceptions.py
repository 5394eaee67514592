"""Where our signatures differ from Keras' on purpose, each with its reason.

Keys are "module.Class" or "module.Class.method"; everything else must be equal to
Keras 3.15, parameter by parameter: names, order, kinds and defaults.
"""

EXCEPTIONS: dict[str, str] = {
    "Model.fit": "has `check=True` besides Keras' arguments: it names NaN in the data",
}
