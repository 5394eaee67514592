# An own optimizer, schedule, loss, metric, regularizer and constraint, saved and loaded.
import keras
import numpy as np
from keras import layers, ops

registered = keras.saving.register_keras_serializable("parts")


@registered
class SignMomentum(keras.optimizers.Optimizer):
    def __init__(self, learning_rate=0.01, beta=0.9, name="sign", **options):
        super().__init__(learning_rate=learning_rate, name=name, **options)
        self.beta = beta

    def build(self, variables):
        if self.built:
            return
        super().build(variables)
        self.momenta = [
            self.add_variable_from_reference(variable, name="momentum")
            for variable in variables
        ]

    def update_step(self, gradient, variable, learning_rate):
        rate = ops.cast(learning_rate, variable.dtype)
        momentum = self.momenta[self._get_variable_index(variable)]
        mean = self.beta * momentum + (1 - self.beta) * gradient
        self.assign(momentum, mean)
        self.assign_sub(variable, rate * ops.tanh(100 * mean))

    def get_config(self):
        return {**super().get_config(), "beta": self.beta}


@registered
class Warmup(keras.optimizers.schedules.LearningRateSchedule):
    def __init__(self, rate, steps):
        self.rate, self.steps = rate, steps

    def __call__(self, step):
        return self.rate * ops.minimum(
            1.0, (ops.cast(step, "float32") + 1) / self.steps
        )

    def get_config(self):
        return {"rate": self.rate, "steps": self.steps}


@registered
class Focal(keras.losses.Loss):
    def __init__(self, gamma=2.0, name="focal", reduction="sum_over_batch_size"):
        super().__init__(name=name, reduction=reduction)
        self.gamma = gamma

    def call(self, y_true, y_pred):
        right = ops.where(y_true > 0.5, y_pred, 1 - y_pred)
        return ops.mean(-((1 - right) ** self.gamma) * ops.log(right + 1e-7), axis=-1)

    def get_config(self):
        return {"gamma": self.gamma, "name": self.name, "reduction": self.reduction}


@registered
class Agreement(keras.metrics.Metric):
    def __init__(self, name="agreement", **options):
        super().__init__(name=name, **options)
        self.right = self.add_weight(name="right", initializer="zeros")
        self.seen = self.add_weight(name="seen", initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        same = ops.cast(ops.equal(y_pred > 0.5, y_true > 0.5), "float32")
        weight = ops.ones_like(same)
        if sample_weight is not None:
            weight = weight * ops.cast(sample_weight, "float32")[:, None]
        self.right.assign_add(ops.sum(same * weight))
        self.seen.assign_add(ops.sum(weight))

    def result(self):
        return self.right / self.seen


@registered
class Orthogonal(keras.regularizers.Regularizer):
    def __init__(self, factor):
        self.factor = factor

    def __call__(self, kernel):
        products = ops.matmul(ops.transpose(kernel), kernel)
        return self.factor * ops.sum(ops.square(products - ops.eye(kernel.shape[1])))

    def get_config(self):
        return {"factor": self.factor}


@registered
class Positive(keras.constraints.Constraint):
    def __call__(self, kernel):
        return kernel * ops.cast(kernel >= 0, kernel.dtype)


rs = np.random.RandomState(0)
x = rs.rand(32, 5).astype("float32")
y = (x.sum(1, keepdims=True) > 2.5).astype("float32")
model = keras.Sequential(
    [
        keras.Input((5,)),
        layers.Dense(6, "relu", kernel_regularizer=Orthogonal(0.01)),
        layers.Dense(4, keras.activations.mish, kernel_constraint=Positive()),
        layers.Dense(1, "sigmoid"),
    ]
)
model.compile(
    SignMomentum(Warmup(0.01, 5), clipnorm=1.0),
    Focal(1.5),
    metrics=[Agreement()],
    weighted_metrics=[Agreement(name="weighted")],
)
weights = rs.rand(32)
history = model.fit(x, y, sample_weight=weights, batch_size=8, epochs=2, verbose=0)
for name in ("loss", "agreement", "weighted"):
    print(f"{name} loss: {history.history[name][-1]:.5f}")
model.save("parts.keras")
loaded = keras.models.load_model("parts.keras")
print(loaded.optimizer.beta, loaded.loss.gamma, type(loaded.optimizer).__name__)
for network in (model, loaded):
    history = network.fit(x, y, batch_size=8, epochs=1, verbose=0).history
    print(f"loss goes on: {history['loss'][0]:.5f}")
