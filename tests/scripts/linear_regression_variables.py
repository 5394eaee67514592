# Linear regression with plain variables and gradients, no layers at all.
import numpy as np
import tensorflow as tf

rng = np.random.default_rng(8)
x = rng.uniform(-1, 1, size=(64, 1)).astype("float32")
y = 3.0 * x + 2.0 + rng.normal(scale=0.1, size=x.shape).astype("float32")


class Linear(tf.Module):
    def __init__(self):
        super().__init__()
        self.w = tf.Variable(5.0)
        self.b = tf.Variable(0.0)

    def __call__(self, x):
        return self.w * x + self.b


model = Linear()
for epoch in range(10):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(y - model(x)))
    dw, db = tape.gradient(loss, [model.w, model.b])
    model.w.assign_sub(0.1 * dw)
    model.b.assign_sub(0.1 * db)
    if epoch % 3 == 0:
        print(f"loss {epoch}: {loss.numpy():.5f}")
print(f"w: {model.w.numpy():.4f}")
print(f"b: {model.b.numpy():.4f}")
