# Shared layers: two images through one network, a contrastive loss between them.
import keras
import numpy as np
from keras import layers, ops

rng = np.random.default_rng(22)
left = rng.uniform(size=(30, 6, 6)).astype("float32")
same = rng.integers(0, 2, size=30).astype("float32")
right = np.where(same[:, None, None] > 0, left + 0.05, rng.uniform(size=left.shape))


def contrastive(margin=1.0):
    def loss(y_true, y_pred):
        near = ops.square(y_pred)
        far = ops.square(ops.maximum(margin - y_pred, 0))
        return ops.mean(y_true * near + (1 - y_true) * far)

    return loss


image = keras.Input((6, 6))
h = layers.Dense(8, activation="tanh")(layers.Flatten()(image))
embed = keras.Model(image, layers.Dense(4)(h), name="embed")
first, second = keras.Input((6, 6)), keras.Input((6, 6))
distance = layers.Lambda(
    lambda pair: ops.sqrt(
        ops.sum(ops.square(pair[0] - pair[1]), axis=1, keepdims=True) + 1e-9
    ),
    output_shape=(1,),
)([embed(first), embed(second)])
model = keras.Model([first, second], distance)
model.compile(loss=contrastive(), optimizer="rmsprop")
history = model.fit([left, right], same[:, None], batch_size=10, epochs=2, verbose=0)
print(f"loss: {history.history['loss'][0]:.5f}")
print(f"second loss: {history.history['loss'][1]:.5f}")
print("weights:", len(model.weights))
