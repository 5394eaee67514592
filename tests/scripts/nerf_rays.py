# Neural radiance fields: rays in tf.data, a volume rendered inside of the train step.
import keras
import numpy as np
import tensorflow as tf
from keras import layers

SIZE, SAMPLES, BATCH, DEGREES = 6, 4, 2, 3
rs = np.random.RandomState(0)
images = rs.rand(6, SIZE, SIZE, 3).astype("float32")
poses = (np.eye(4) + rs.rand(6, 4, 4) * 0.1).astype("float32")


def encode(x):
    parts = [x]
    for i in range(DEGREES):
        for function in [tf.sin, tf.cos]:
            parts.append(function(2.0**i * x))
    return tf.concat(parts, axis=-1)


def rays(pose):
    i, j = tf.meshgrid(
        tf.range(SIZE, dtype=tf.float32),
        tf.range(SIZE, dtype=tf.float32),
        indexing="xy",
    )
    i, j = (i - SIZE * 0.5) / 8.0, (j - SIZE * 0.5) / 8.0
    directions = tf.stack([i, -j, -tf.ones_like(i)], axis=-1)
    directions = tf.reduce_sum(directions[..., None, :] * pose[:3, :3], axis=-1)
    origins = tf.broadcast_to(pose[:3, -1], tf.shape(directions))
    depths = tf.linspace(2.0, 6.0, SAMPLES)
    points = origins[..., None, :] + directions[..., None, :] * depths[..., None]
    return encode(tf.reshape(points, [-1, 3])), depths + tf.zeros((SIZE, SIZE, SAMPLES))


data = tf.data.Dataset.zip(
    (
        tf.data.Dataset.from_tensor_slices(images),
        tf.data.Dataset.from_tensor_slices(poses).map(
            rays, num_parallel_calls=tf.data.AUTOTUNE
        ),
    )
)
data = data.shuffle(BATCH).batch(BATCH, drop_remainder=True).prefetch(tf.data.AUTOTUNE)


def render(model, points, depths):
    outputs = tf.reshape(model(points), (BATCH, SIZE, SIZE, SAMPLES, 4))
    colors, density = tf.sigmoid(outputs[..., :-1]), tf.nn.relu(outputs[..., -1])
    steps = depths[..., 1:] - depths[..., :-1]
    last = tf.broadcast_to([1e10], shape=(BATCH, SIZE, SIZE, 1))
    alpha = 1.0 - tf.exp(-density * tf.concat([steps, last], axis=-1))
    passed = tf.math.cumprod(1.0 - alpha + 1e-10, axis=-1, exclusive=True)
    weights = alpha * passed
    picture = tf.reduce_sum(weights[..., None] * colors, axis=-2)
    return picture, tf.reduce_sum(weights * depths, axis=-1)


class NeRF(keras.Model):
    def __init__(self, field):
        super().__init__()
        self.field = field

    def compile(self, optimizer, loss_fn):
        super().compile()
        self.optimizer, self.loss_fn = optimizer, loss_fn
        self.loss_tracker = keras.metrics.Mean(name="loss")
        self.psnr_metric = keras.metrics.Mean(name="psnr")

    @property
    def metrics(self):
        return [self.loss_tracker, self.psnr_metric]

    def train_step(self, inputs):
        images, (points, depths) = inputs
        with tf.GradientTape() as tape:
            pictures, _ = render(self.field, points, depths)
            loss = self.loss_fn(images, pictures)
        weights = self.field.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
        self.loss_tracker.update_state(loss)
        self.psnr_metric.update_state(tf.image.psnr(images, pictures, max_val=1.0))
        return {m.name: m.result() for m in self.metrics}


inputs = keras.Input((SIZE * SIZE * SAMPLES, 6 * DEGREES + 3))
x = layers.Dense(16, activation="relu")(inputs)
x = layers.concatenate([layers.Dense(16, activation="relu")(x), inputs], axis=-1)
model = NeRF(keras.Model(inputs, layers.Dense(4)(x)))
model.compile(keras.optimizers.Adam(), keras.losses.MeanSquaredError())
history = model.fit(data, batch_size=BATCH, epochs=2, verbose=0).history
for name, values in history.items():
    print(f"{name}: {values[-1]:.5f}")
