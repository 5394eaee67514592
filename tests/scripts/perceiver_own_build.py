# A Perceiver: a model that builds itself, models with dictionaries of inputs inside.
import keras
import numpy as np
from keras import layers, ops

PATCH, PATCHES, LATENTS, WIDTH = 2, 16, 4, 8


class PatchEncoder(layers.Layer):
    def __init__(self, count, width):
        super().__init__()
        self.count = count
        self.projection = layers.Dense(width)
        self.places = layers.Embedding(count, width)

    def call(self, patches):
        return self.projection(patches) + self.places(
            ops.arange(start=0, stop=self.count, step=1)
        )


def cross_attention():
    inputs = {
        "latent_array": layers.Input((LATENTS, WIDTH), name="latent_array"),
        "data_array": layers.Input((PATCHES, WIDTH), name="data_array"),
    }
    latent = layers.LayerNormalization(epsilon=1e-6)(inputs["latent_array"])
    data = layers.LayerNormalization(epsilon=1e-6)(inputs["data_array"])
    query, key, value = (
        layers.Dense(WIDTH)(latent),
        layers.Dense(WIDTH)(data),
        layers.Dense(WIDTH)(data),
    )
    attended = layers.Attention(use_scale=True)([query, key, value])
    attended = layers.LayerNormalization(epsilon=1e-6)(layers.Add()([attended, latent]))
    wide = keras.Sequential([layers.Dense(16, activation="gelu"), layers.Dense(WIDTH)])
    return keras.Model(inputs, layers.Add()([wide(attended), attended]))


class Perceiver(keras.Model):
    def build(self, input_shape):
        self.latents = self.add_weight(
            shape=(LATENTS, WIDTH), initializer="random_normal", trainable=True
        )
        self.encoder = PatchEncoder(PATCHES, WIDTH)
        self.attention = cross_attention()
        self.pool, self.head = layers.GlobalAveragePooling1D(), layers.Dense(3)
        super().build(input_shape)

    def call(self, images):
        patches = ops.image.extract_patches(images, PATCH)
        patches = ops.reshape(patches, (ops.shape(patches)[0], -1, patches.shape[-1]))
        inputs = {
            "latent_array": ops.expand_dims(self.latents, 0),
            "data_array": self.encoder(patches),
        }
        for _ in range(2):
            inputs["latent_array"] = self.attention(inputs)
        return self.head(self.pool(inputs["latent_array"]))


rs = np.random.RandomState(0)
x, y = rs.rand(24, 8, 8, 3).astype("float32"), rs.randint(0, 3, 24)
model = Perceiver()
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(
    keras.optimizers.Adam(0.01, global_clipnorm=1.0), loss, metrics=["accuracy"]
)
history = model.fit(x, y, batch_size=8, epochs=2, verbose=0).history
for name in ("loss", "accuracy"):
    print(f"{name}: {history[name][-1]:.5f}")
print(len(model.trainable_weights), model.count_params())
