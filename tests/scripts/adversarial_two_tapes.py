# Adversarial training: one tape for the attack, one for the step, both on the model.
import keras
import numpy as np
import tensorflow as tf

rs = np.random.RandomState(0)
x = rs.rand(96, 8, 8, 1).astype("float32")
y = (x[:, :4].mean((1, 2, 3)) > x[:, 4:].mean((1, 2, 3))).astype("int64")
base = keras.Sequential(
    [
        keras.layers.Input((8, 8, 1)),
        keras.layers.Conv2D(4, 3, activation="tanh"),
        keras.layers.Flatten(),
        keras.layers.Dense(2),
    ]
)


class Robust(keras.Model):
    def __init__(self, base, size=0.05):
        super().__init__()
        self.base, self.size = base, size
        self.attacked = keras.metrics.SparseCategoricalAccuracy(name="attacked")

    def call(self, x, training=False):
        return self.base(x, training=training)

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as attack:
            attack.watch(x)
            loss = self.compute_loss(x, y, self(x, training=True))
        worse = tf.stop_gradient(x + self.size * tf.sign(attack.gradient(loss, x)))
        with tf.GradientTape() as tape:
            outputs = self(x, training=True)
            clean = self.compute_loss(x, y, outputs)
            attacked = self(worse, training=True)
            loss = 0.5 * clean + 0.5 * self.compute_loss(worse, y, attacked)
        weights = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
        self.attacked.update_state(y, attacked)
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
        return {
            m.name: m.result() for m in self.metrics if m.name in ("loss", "attacked")
        }


model = Robust(base)
model.compile(
    keras.optimizers.SGD(0.1),
    keras.losses.SparseCategoricalCrossentropy(from_logits=True),
)
history = model.fit(x, y, batch_size=32, epochs=3, verbose=0).history
for name in ("loss", "attacked"):
    for epoch, value in enumerate(history[name]):
        print(f"{name} {epoch}: {value:.5f}")
criterion = keras.losses.CategoricalCrossentropy(from_logits=True)


@tf.function
def projected(x, y, most=0.1):
    delta = tf.zeros_like(x)
    for _ in tf.range(4):
        with tf.GradientTape() as tape:
            tape.watch(delta)
            loss = criterion(y, base(x + delta))
        delta = tf.clip_by_value(
            delta + 0.03 * tf.sign(tape.gradient(loss, delta)), -most, most
        )
    return x + delta


images, labels = tf.constant(x[:8]), tf.one_hot(y[:8], 2)
print(f"loss before: {float(criterion(labels, base(images))):.5f}")
print(f"loss after: {float(criterion(labels, base(projected(images, labels)))):.5f}")
