# A data set of dictionaries, for a model with named inputs.
import numpy as np
import tensorflow as tf

rng = np.random.default_rng(3)
features = {
    "age": rng.uniform(18, 80, size=(60, 1)).astype("float32"),
    "city": rng.integers(0, 5, size=(60, 1)).astype("int32"),
}
target = (features["age"][:, 0] / 80 + features["city"][:, 0] / 5).astype("float32")
ds = tf.data.Dataset.from_tensor_slices((features, target)).batch(10)
print("specification:", sorted(ds.element_spec[0]))

age = tf.keras.Input((1,), name="age")
city = tf.keras.Input((1,), name="city", dtype="int32")
embedded = tf.keras.layers.Flatten()(tf.keras.layers.Embedding(5, 3)(city))
joined = tf.keras.layers.Concatenate()(
    [tf.keras.layers.Rescaling(1 / 80)(age), embedded]
)
output = tf.keras.layers.Dense(1)(tf.keras.layers.Dense(8, activation="relu")(joined))
model = tf.keras.Model(inputs={"age": age, "city": city}, outputs=output)
model.compile(tf.keras.optimizers.SGD(0.05, momentum=0.9), "mse", metrics=["mae"])
history = model.fit(ds.take(4), epochs=3, validation_data=ds.skip(4), verbose=0)
for epoch, loss in enumerate(history.history["loss"]):
    print(f"loss {epoch}: {loss:.5f}")
print(f"val_mae: {history.history['val_mae'][-1]:.5f}")
