# Steps by hand with train_on_batch, test_on_batch and predict_on_batch.
import keras
import numpy as np

rng = np.random.default_rng(24)
x = rng.normal(size=(30, 4)).astype("float32")
y = rng.integers(0, 3, size=30)
model = keras.Sequential(
    [keras.Input((4,)), keras.layers.Dense(9, "selu"), keras.layers.Dense(3, "softmax")]
)
model.compile(
    keras.optimizers.Adagrad(0.1),
    "sparse_categorical_crossentropy",
    metrics=["accuracy"],
)
for step in range(6):
    rows = slice(5 * step, 5 * step + 5)
    logs = model.train_on_batch(x[rows], y[rows], return_dict=True)
    print(f"loss {step}: {logs['loss']:.5f}")
loss, accuracy = model.test_on_batch(x, y)
print(f"test loss: {loss:.5f}")
print(f"accuracy: {accuracy:.4f}")
print("classes:", model.predict_on_batch(x[:4]).argmax(axis=1).shape)
