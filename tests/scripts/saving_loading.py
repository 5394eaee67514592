# A model with a custom layer and a custom loss, saved and loaded.
import keras
import numpy as np
from keras import layers, ops


@keras.saving.register_keras_serializable(package="scripts")
class Scale(layers.Layer):
    def __init__(self, factor=1.0, **kwargs):
        super().__init__(**kwargs)
        self.factor = factor

    def build(self, input_shape):
        self.gain = self.add_weight(shape=(input_shape[-1],), initializer="ones")

    def call(self, inputs):
        return inputs * self.gain * self.factor

    def get_config(self):
        return {**super().get_config(), "factor": self.factor}


@keras.saving.register_keras_serializable(package="scripts")
def smooth_l1(y_true, y_pred):
    error = ops.abs(y_true - y_pred)
    return ops.mean(ops.where(error < 1, 0.5 * error**2, error - 0.5), axis=-1)


rng = np.random.default_rng(13)
x, y = rng.normal(size=(30, 5)), rng.normal(size=(30, 2))
model = keras.Sequential(
    [keras.Input((5,)), Scale(0.5), layers.Dense(6, "swish"), layers.Dense(2)]
)
model.compile("adam", smooth_l1)
history = model.fit(x, y, epochs=2, batch_size=10, verbose=0)
print(f"loss: {history.history['loss'][0]:.5f}")
model.save("model.keras")
loaded = keras.models.load_model("model.keras")
np.testing.assert_allclose(
    loaded.predict(x, verbose=0), model.predict(x, verbose=0), rtol=1e-5
)
history = loaded.fit(x, y, epochs=1, batch_size=10, verbose=0)
print(f"resumed loss: {history.history['loss'][0]:.5f}")
copy = keras.models.clone_model(model)
copy.set_weights(loaded.get_weights())
copy.compile("sgd", "mse")
print(f"clone: {copy.evaluate(x, y, verbose=0):.5f}")
