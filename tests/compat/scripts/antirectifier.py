# Custom layer: antirectifier, after keras.io.
import keras
import numpy as np
from keras import layers, ops


class Antirectifier(layers.Layer):
    def __init__(self, initializer="he_normal", **kwargs):
        super().__init__(**kwargs)
        self.initializer = keras.initializers.get(initializer)

    def build(self, input_shape):
        output_dim = input_shape[-1]
        self.kernel = self.add_weight(
            shape=(output_dim * 2, output_dim),
            initializer=self.initializer,
            name="kernel",
            trainable=True,
        )

    def call(self, inputs):
        inputs -= ops.mean(inputs, axis=-1, keepdims=True)
        pos = ops.relu(inputs)
        neg = ops.relu(-inputs)
        concatenated = ops.concatenate([pos, neg], axis=-1)
        mixed = ops.matmul(concatenated, self.kernel)
        return mixed

    def get_config(self):
        base_config = super().get_config()
        config = {"initializer": keras.initializers.serialize(self.initializer)}
        return dict(list(base_config.items()) + list(config.items()))


rng = np.random.default_rng(0)
y_train = rng.integers(0, 10, 200)
x_train = rng.random((200, 64)).astype("float32")
x_train[np.arange(200), y_train] += 2
model = keras.Sequential(
    [
        keras.Input(shape=(64,)),
        layers.Dense(32),
        Antirectifier(),
        layers.Dense(32),
        Antirectifier(),
        layers.Dropout(0.1),
        layers.Dense(10),
    ]
)
model.compile(
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    optimizer=keras.optimizers.RMSprop(),
    metrics=[keras.metrics.SparseCategoricalAccuracy()],
)
history = model.fit(x_train, y_train, batch_size=32, epochs=4, validation_split=0.15)
model.evaluate(x_train, y_train)
print("final loss:", history.history["loss"][-1])
