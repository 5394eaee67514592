# MLP-Mixer and gMLP-like blocks.
import keras
import numpy as np
from keras import layers


class Patches(layers.Layer):
    def __init__(self, patch_size, **kwargs):
        super().__init__(**kwargs)
        self.patch_size = patch_size

    def call(self, x):
        b, h, w, c = keras.ops.shape(x)
        p = self.patch_size
        x = keras.ops.reshape(x, (b, h // p, p, w // p, p, c))
        x = keras.ops.transpose(x, (0, 1, 3, 2, 4, 5))
        return keras.ops.reshape(x, (b, (h // p) * (w // p), p * p * c))


class MLPMixerLayer(layers.Layer):
    def __init__(self, num_patches, hidden_units, dropout_rate, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.mlp1 = keras.Sequential(
            [
                layers.Dense(units=num_patches, activation="gelu"),
                layers.Dense(units=num_patches),
                layers.Dropout(rate=dropout_rate),
            ]
        )
        self.mlp2 = keras.Sequential(
            [
                layers.Dense(units=num_patches, activation="gelu"),
                layers.Dense(units=hidden_units),
                layers.Dropout(rate=dropout_rate),
            ]
        )
        self.normalize = layers.LayerNormalization(epsilon=1e-6)

    def build(self, input_shape):
        return super().build(input_shape)

    def call(self, inputs):
        x = self.normalize(inputs)
        x_channels = keras.ops.transpose(x, axes=(0, 2, 1))
        mlp1_outputs = self.mlp1(x_channels)
        mlp1_outputs = keras.ops.transpose(mlp1_outputs, axes=(0, 2, 1))
        x = mlp1_outputs + inputs
        x_patches = self.normalize(x)
        mlp2_outputs = self.mlp2(x_patches)
        x = x + mlp2_outputs
        return x


class PositionEmbedding(layers.Layer):
    def __init__(self, num_patches, dim):
        super().__init__()
        self.num_patches = num_patches
        self.embed = layers.Embedding(num_patches, dim)

    def call(self, x):
        positions = keras.ops.arange(start=0, stop=self.num_patches, step=1)
        return x + self.embed(positions)


rng = np.random.default_rng(0)
labels = rng.integers(0, 4, 80)
images = rng.normal(size=(80, 16, 16, 3)) + labels[:, None, None, None]
patches_size, hidden = 4, 24
inputs = layers.Input(shape=(16, 16, 3))
patches = Patches(patches_size)(inputs)
x = layers.Dense(units=hidden)(patches)
x = PositionEmbedding(16, hidden)(x)
x = keras.Sequential([MLPMixerLayer(16, hidden, 0.1) for _ in range(2)])(x)
representation = layers.GlobalAveragePooling1D()(x)
representation = layers.Dropout(rate=0.1)(representation)
logits = layers.Dense(4)(representation)
model = keras.Model(inputs=inputs, outputs=logits)
optimizer = keras.optimizers.AdamW(learning_rate=0.005, weight_decay=0.0001)
model.compile(
    optimizer=optimizer,
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=[
        keras.metrics.SparseCategoricalAccuracy(name="acc"),
        keras.metrics.SparseTopKCategoricalAccuracy(2, name="top2-acc"),
    ],
)
reduce_lr = keras.callbacks.ReduceLROnPlateau(
    monitor="val_loss", factor=0.5, patience=5
)
early_stopping = keras.callbacks.EarlyStopping(
    monitor="val_loss", patience=10, restore_best_weights=True
)
history = model.fit(
    x=images,
    y=labels,
    batch_size=16,
    epochs=4,
    validation_split=0.1,
    callbacks=[early_stopping, reduce_lr],
    verbose=0,
)
_, accuracy, top = model.evaluate(images, labels, verbose=0)
print(f"Test accuracy: {round(accuracy * 100, 2)}%")
print("final loss:", history.history["loss"][-1])
