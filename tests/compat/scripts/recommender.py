# Collaborative filtering by a subclassed model, after keras.io.
import keras
import numpy as np
from keras import layers, ops

EMBEDDING_SIZE = 8
num_users, num_movies = 30, 40
rng = np.random.default_rng(0)
x = np.stack(
    [rng.integers(0, num_users, 400), rng.integers(0, num_movies, 400)], axis=1
)
y = ((x[:, 0] % 3 == x[:, 1] % 3) * 0.8 + 0.1).astype("float32")


class RecommenderNet(keras.Model):
    def __init__(self, num_users, num_movies, embedding_size, **kwargs):
        super().__init__(**kwargs)
        self.num_users = num_users
        self.num_movies = num_movies
        self.embedding_size = embedding_size
        self.user_embedding = layers.Embedding(
            num_users,
            embedding_size,
            embeddings_initializer="he_normal",
            embeddings_regularizer=keras.regularizers.l2(1e-6),
        )
        self.user_bias = layers.Embedding(num_users, 1)
        self.movie_embedding = layers.Embedding(
            num_movies,
            embedding_size,
            embeddings_initializer="he_normal",
            embeddings_regularizer=keras.regularizers.l2(1e-6),
        )
        self.movie_bias = layers.Embedding(num_movies, 1)

    def call(self, inputs):
        user_vector = self.user_embedding(inputs[:, 0])
        user_bias = self.user_bias(inputs[:, 0])
        movie_vector = self.movie_embedding(inputs[:, 1])
        movie_bias = self.movie_bias(inputs[:, 1])
        dot_user_movie = ops.sum(user_vector * movie_vector, axis=1, keepdims=True)
        x = dot_user_movie + user_bias + movie_bias
        return ops.nn.sigmoid(x)


model = RecommenderNet(num_users, num_movies, EMBEDDING_SIZE)
model.compile(
    loss=keras.losses.BinaryCrossentropy(),
    optimizer=keras.optimizers.Adam(learning_rate=0.02),
)
history = model.fit(
    x=x[:360],
    y=y[:360],
    batch_size=64,
    epochs=5,
    verbose=1,
    validation_data=(x[360:], y[360:]),
)
movies = np.arange(10).reshape(-1, 1)
ratings = model.predict(np.hstack(([[3]] * len(movies), movies))).flatten()
top = ratings.argsort()[-3:][::-1]
print(top)
print("final loss:", history.history["loss"][-1])
