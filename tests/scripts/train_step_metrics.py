# train_step and test_step with compute_loss and compiled metrics.
import keras
import numpy as np
import tensorflow as tf


class CustomModel(keras.Model):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = self.compute_loss(y=y, y_pred=y_pred)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
            else:
                metric.update_state(y, y_pred)
        return {m.name: m.result() for m in self.metrics}

    def test_step(self, data):
        x, y = data
        y_pred = self(x, training=False)
        loss = self.compute_loss(y=y, y_pred=y_pred)
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
            else:
                metric.update_state(y, y_pred)
        return {m.name: m.result() for m in self.metrics}


rng = np.random.default_rng(34)
x, y = rng.normal(size=(40, 8)), rng.normal(size=(40, 1))
inputs = keras.Input(shape=(8,))
outputs = keras.layers.Dense(1)(keras.layers.Dense(6, activation="relu")(inputs))
model = CustomModel(inputs, outputs)
model.compile(optimizer="adam", loss="mse", metrics=["mae"])
history = model.fit(x, y, epochs=2, batch_size=10, verbose=0)
print(f"loss: {history.history['loss'][0]:.5f}")
print(f"mae: {history.history['mae'][1]:.5f}")
results = model.evaluate(x, y, return_dict=True, verbose=0)
print(f"test loss: {results['loss']:.5f}")
