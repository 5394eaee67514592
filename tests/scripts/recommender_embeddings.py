# Collaborative filtering: users and films as vectors, their product as a rating.
import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

rng = np.random.default_rng(23)
pairs = rng.integers(0, [12, 15], size=(90, 2))
ratings = ((pairs[:, 0] + pairs[:, 1]) % 5 / 4.0).astype("float32")


class RecommenderNet(keras.Model):
    def __init__(self, users, films, size, **kwargs):
        super().__init__(**kwargs)
        self.user = layers.Embedding(
            users,
            size,
            embeddings_initializer="he_normal",
            embeddings_regularizer=keras.regularizers.l2(1e-6),
        )
        self.user_bias = layers.Embedding(users, 1)
        self.film = layers.Embedding(films, size, embeddings_initializer="he_normal")
        self.film_bias = layers.Embedding(films, 1)

    def call(self, inputs):
        user, film = self.user(inputs[:, 0]), self.film(inputs[:, 1])
        product = tf.reduce_sum(user * film, axis=1, keepdims=True)
        total = product + self.user_bias(inputs[:, 0]) + self.film_bias(inputs[:, 1])
        return tf.nn.sigmoid(total)


model = RecommenderNet(12, 15, 6)
model.compile(
    loss=tf.keras.losses.BinaryCrossentropy(),
    optimizer=keras.optimizers.Adam(learning_rate=0.01),
)
history = model.fit(
    x=pairs[:80],
    y=ratings[:80],
    batch_size=16,
    epochs=2,
    verbose=0,
    validation_data=(pairs[80:], ratings[80:]),
)
print(f"loss: {history.history['loss'][0]:.5f}")
print(f"validation loss: {history.history['val_loss'][0]:.5f}")
