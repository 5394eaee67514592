# Fine-tuning in stages: a frozen base, batch norm kept frozen, the learning rate by batch.
import keras
import numpy as np
from keras import layers, ops

rng = np.random.default_rng(0)
x = rng.normal(2, 3, size=(32, 6)).astype("float32")
y = rng.integers(0, 3, 32)
norm = layers.BatchNormalization(momentum=0.7)
base = keras.Sequential(
    [keras.Input((6,)), layers.Dense(8), norm, layers.ReLU(), layers.Dense(5)]
)
inputs = keras.Input((6,))
net = keras.Model(inputs, layers.Dense(3, activation="softmax")(base(inputs)))


class Slower(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        self.model.optimizer.learning_rate = 0.05 / (1 + batch)


def stage(name, optimizer, callbacks=()):
    net.compile(optimizer, "sparse_categorical_crossentropy")
    history = net.fit(
        x, y, epochs=2, batch_size=8, verbose=0, callbacks=list(callbacks)
    )
    print(f"{name} loss: {history.history['loss'][-1]:.5f}")
    print(f"{name} moving mean: {float(ops.sum(norm.moving_mean)):.5f}")
    print(
        name,
        "trainable",
        len(net.trainable_weights),
        "steps",
        int(net.optimizer.iterations),
    )


base.trainable = False
stage("frozen", keras.optimizers.Adam(0.01))
base.trainable = True
norm.trainable = False
stage("but batch norm", keras.optimizers.Adam(0.01))
norm.trainable = True
stage("all", keras.optimizers.SGD(0.05, momentum=0.9), [Slower()])
print(f"in training: {float(ops.sum(ops.abs(base(x, training=True)))):.5f}")
print(f"in inference: {float(ops.sum(ops.abs(base(x)))):.5f}")
