# Two towers whose outputs are compared by cosine; a multi-task head beside them.
import keras
import numpy as np
from keras import layers

rng = np.random.default_rng(52)
query, item = rng.normal(size=(32, 6)), rng.normal(size=(32, 9))
match = rng.choice([-1.0, 1.0], size=(32, 1))
price = item[:, :1] * 2


def tower(size, name):
    inputs = keras.Input((size,), name=name)
    h = layers.Dense(10, activation="silu")(inputs)
    return inputs, layers.UnitNormalization()(layers.Dense(5)(h))


left_in, left = tower(6, "query")
right_in, right = tower(9, "item")
cosine = layers.Dot(axes=1, normalize=True, name="cosine")([left, right])
value = layers.Dense(1, name="price")(right)
model = keras.Model([left_in, right_in], [cosine, value])
model.compile(
    keras.optimizers.Adamax(0.01),
    loss=["hinge", "mean_absolute_error"],
    loss_weights=[1.0, 0.3],
)
history = model.fit([query, item], [match, price], batch_size=8, epochs=2, verbose=0)
for name, values in sorted(history.history.items()):
    print(f"{name}: {values[0]:.5f}")
