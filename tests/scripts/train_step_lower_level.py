# A train_step that does everything itself, with metrics of its own.
import keras
import numpy as np
import tensorflow as tf

loss_tracker = keras.metrics.Mean(name="loss")
mae_metric = keras.metrics.MeanAbsoluteError(name="mae")


class CustomModel(keras.Model):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = tf.reduce_mean(tf.square(y - y_pred)) + sum(self.losses)
        trainable_vars = self.trainable_variables
        gradients = tape.gradient(loss, trainable_vars)
        gradients, norm = tf.clip_by_global_norm(gradients, 1.0)
        self.optimizer.apply_gradients(zip(gradients, trainable_vars))
        loss_tracker.update_state(loss)
        mae_metric.update_state(y, y_pred)
        return {"loss": loss_tracker.result(), "mae": mae_metric.result(), "norm": norm}

    @property
    def metrics(self):
        return [loss_tracker, mae_metric]


rng = np.random.default_rng(35)
x = rng.normal(size=(30, 5)).astype("float32")
y = rng.normal(size=(30, 1)).astype("float32")
inputs = keras.Input((5,))
h = keras.layers.Dense(
    7, activation="relu", activity_regularizer=keras.regularizers.L2(0.01)
)(inputs)
model = CustomModel(inputs, keras.layers.Dense(1)(h))
model.compile(optimizer=keras.optimizers.SGD(0.1))
history = model.fit(x, y, epochs=3, batch_size=10, verbose=0)
for epoch in range(3):
    print(f"loss {epoch}: {history.history['loss'][epoch]:.5f}")
print(f"norm: {history.history['norm'][0]:.4f}")
