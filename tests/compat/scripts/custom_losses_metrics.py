# Focal and dice losses, metrics as functions and classes, add_metric-free tracking.
import keras
import numpy as np
from keras import layers, ops


def focal_loss(gamma=2.0, alpha=0.25):
    def focal_loss_fixed(y_true, y_pred):
        y_true = ops.cast(y_true, "float32")
        epsilon = keras.config.epsilon()
        y_pred = ops.clip(y_pred, epsilon, 1.0 - epsilon)
        p_t = ops.where(ops.equal(y_true, 1), y_pred, 1 - y_pred)
        alpha_factor = ops.ones_like(y_true) * alpha
        alpha_t = ops.where(ops.equal(y_true, 1), alpha_factor, 1 - alpha_factor)
        cross_entropy = -ops.log(p_t)
        weight = alpha_t * ops.power((1 - p_t), gamma)
        loss = weight * cross_entropy
        return ops.mean(ops.sum(loss, axis=1))

    return focal_loss_fixed


def dice_coef(y_true, y_pred, smooth=1.0):
    y_true_f = ops.reshape(ops.cast(y_true, "float32"), [-1])
    y_pred_f = ops.reshape(y_pred, [-1])
    intersection = ops.sum(y_true_f * y_pred_f)
    return (2.0 * intersection + smooth) / (
        ops.sum(y_true_f) + ops.sum(y_pred_f) + smooth
    )


def dice_coef_loss(y_true, y_pred):
    return 1 - dice_coef(y_true, y_pred)


@keras.saving.register_keras_serializable()
class WeightedMSE(keras.losses.Loss):
    def __init__(self, factor=0.1, name="weighted_mse", **kwargs):
        super().__init__(name=name, **kwargs)
        self.factor = factor

    def call(self, y_true, y_pred):
        mse = ops.mean(ops.square(y_true - y_pred), axis=-1)
        reg = ops.mean(ops.square(0.5 - y_pred), axis=-1)
        return mse + reg * self.factor

    def get_config(self):
        return {**super().get_config(), "factor": self.factor}


class BinaryTruePositives(keras.metrics.Metric):
    def __init__(self, name="binary_true_positives", **kwargs):
        super().__init__(name=name, **kwargs)
        self.true_positives = self.add_variable(
            shape=(), initializer="zeros", name="tp"
        )

    def update_state(self, y_true, y_pred, sample_weight=None):
        y_true = ops.cast(y_true, "bool")
        y_pred = ops.greater(y_pred, 0.5)
        values = ops.logical_and(ops.equal(y_true, True), ops.equal(y_pred, True))
        values = ops.cast(values, self.dtype)
        if sample_weight is not None:
            sample_weight = ops.cast(sample_weight, self.dtype)
            values = ops.multiply(values, sample_weight)
        self.true_positives.assign_add(ops.sum(values))

    def result(self):
        return self.true_positives

    def reset_state(self):
        self.true_positives.assign(0)


rng = np.random.default_rng(0)
x = rng.normal(size=(100, 8)).astype("float32")
y = (x[:, :2] > 0).astype("int32")
for loss in [
    focal_loss(),
    dice_coef_loss,
    WeightedMSE(),
    keras.losses.Huber(),
    keras.losses.BinaryFocalCrossentropy(),
    keras.losses.Dice(),
    "log_cosh",
]:
    model = keras.Sequential(
        [keras.Input((8,)), layers.Dense(16, "relu"), layers.Dense(2, "sigmoid")]
    )
    model.compile(
        optimizer="adam",
        loss=loss,
        metrics=[
            dice_coef,
            "accuracy",
            BinaryTruePositives(),
            keras.metrics.Precision(),
            "Recall",
            keras.metrics.AUC(multi_label=True, num_labels=2),
            "mae",
        ],
    )
    history = model.fit(x, y.astype("float32"), epochs=3, batch_size=20, verbose=0)
    print({k: v[-1] for k, v in history.history.items()})
model.save("own.keras")
print("final loss:", history.history["loss"][-1])
