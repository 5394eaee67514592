# Nested custom layers and models, lazy weights, get_config, saving in the middle.
import keras
import numpy as np
from keras import layers, ops


@keras.saving.register_keras_serializable(package="MyLayers")
class Linear(keras.layers.Layer):
    def __init__(self, units=32, **kwargs):
        super().__init__(**kwargs)
        self.units = units

    def build(self, input_shape):
        self.w = self.add_weight(
            shape=(input_shape[-1], self.units),
            initializer="random_normal",
            trainable=True,
        )
        self.b = self.add_weight(
            shape=(self.units,), initializer="random_normal", trainable=True
        )

    def call(self, inputs):
        return ops.matmul(inputs, self.w) + self.b

    def get_config(self):
        config = super().get_config()
        config.update({"units": self.units})
        return config


@keras.saving.register_keras_serializable(package="MyLayers")
class ComputeSum(keras.layers.Layer):
    def __init__(self, input_dim, **kwargs):
        super().__init__(**kwargs)
        self.input_dim = input_dim
        self.total = self.add_weight(
            initializer="zeros", shape=(input_dim,), trainable=False
        )

    def call(self, inputs):
        self.total.assign_add(ops.sum(inputs, axis=0))
        return inputs

    def get_config(self):
        return {**super().get_config(), "input_dim": self.input_dim}


@keras.saving.register_keras_serializable(package="MyLayers")
class MLPBlock(keras.layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.linear_1 = Linear(32)
        self.linear_2 = Linear(16)
        self.norm = layers.LayerNormalization(epsilon=1e-6)

    def call(self, inputs, training=None):
        x = self.linear_1(inputs)
        x = ops.relu(x)
        x = self.linear_2(x)
        return self.norm(x, training=training)


class ResidualMLP(keras.Model):
    def __init__(self, num_blocks=2, num_classes=4):
        super().__init__()
        self.num_blocks = num_blocks
        self.num_classes = num_classes
        self.entry = layers.Dense(16, activation="relu")
        self.blocks = [MLPBlock() for _ in range(num_blocks)]
        self.sum = ComputeSum(16)
        self.head = keras.Sequential([layers.Dropout(0.1), layers.Dense(num_classes)])

    def call(self, x, training=False):
        x = self.entry(x)
        for block in self.blocks:
            x = x + block(x, training=training)
        x = self.sum(x)
        return self.head(x, training=training)

    def get_config(self):
        return {"num_blocks": self.num_blocks, "num_classes": self.num_classes}


rng = np.random.default_rng(0)
x = rng.normal(size=(128, 8)).astype("float32")
y = np.argmax(x[:, :4], axis=1)
model = ResidualMLP()
print(len(model.weights))
y_out = model(ops.ones((2, 8)))
print("weights:", len(model.weights))
print("trainable weights:", len(model.trainable_weights))
model.compile(
    optimizer=keras.optimizers.RMSprop(1e-3),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=[keras.metrics.SparseCategoricalAccuracy()],
)
model.fit(x, y, epochs=2, batch_size=16)
model.save("residual.keras")
loaded = keras.models.load_model(
    "residual.keras", custom_objects={"ResidualMLP": ResidualMLP}
)
history = loaded.fit(x, y, epochs=4, batch_size=16, verbose=2)
layer = Linear(8, name="again")
new_layer = Linear.from_config(layer.get_config())
model.summary()
print("final loss:", history.history["loss"][-1])
