# A mixture density network: a loss that unpacks one output into three.
import keras
import numpy as np
from keras import layers, ops

K = 3
rng = np.random.default_rng(63)
y = rng.uniform(-1, 1, size=(48, 1)).astype("float32")
x = (y + 0.3 * np.sin(6 * y)).astype("float32")


def mixture_loss(y_true, y_pred):
    logits, means, log_scales = ops.split(y_pred, 3, axis=-1)
    weights = ops.log_softmax(logits, axis=-1)
    error = (y_true - means) * ops.exp(-log_scales)
    density = (
        weights - log_scales - 0.5 * ops.square(error) - 0.5 * float(np.log(2 * np.pi))
    )
    return -ops.logsumexp(density, axis=-1)


inputs = keras.Input((1,))
h = layers.Dense(12, activation="tanh")(inputs)
outputs = layers.Dense(3 * K)(h)
model = keras.Model(inputs, outputs)
model.compile(keras.optimizers.Adam(0.01, global_clipnorm=1.0), mixture_loss)
history = model.fit(x, y, batch_size=12, epochs=3, verbose=0)
for epoch, loss in enumerate(history.history["loss"]):
    print(f"loss {epoch}: {loss:.5f}")
