# train_on_batch loops: learning rates changed by hand, metrics, test_on_batch.
import keras
import numpy as np
from keras import layers

rng = np.random.default_rng(0)
x = rng.normal(size=(128, 5)).astype("float32")
y = keras.utils.to_categorical(x.argmax(axis=1), num_classes=5)
model = keras.models.Sequential()
model.add(layers.Input(shape=(5,)))
model.add(layers.Dense(16))
model.add(layers.PReLU())
model.add(layers.BatchNormalization())
model.add(layers.Dense(5))
model.add(layers.Activation("softmax"))
optimizer = keras.optimizers.Adam(learning_rate=1e-2)
model.compile(
    optimizer=optimizer, loss="categorical_crossentropy", metrics=["accuracy"]
)
batch = 32
for epoch in range(6):
    order = rng.permutation(len(x))
    losses = []
    for start in range(0, len(x), batch):
        rows = order[start : start + batch]
        loss, accuracy = model.train_on_batch(x[rows], y[rows])
        losses.append(loss)
    if epoch == 3:
        model.optimizer.learning_rate = 1e-3
    if epoch == 4:
        model.optimizer.learning_rate.assign(5e-4)
    print(
        "epoch",
        epoch,
        "loss",
        np.mean(losses),
        "lr",
        float(optimizer.learning_rate),
        "iterations",
        int(optimizer.iterations),
    )
print(model.test_on_batch(x, y, return_dict=True))
print(model.predict_on_batch(x[:3]).sum(axis=1))
weights, biases = model.layers[0].get_weights()
print(weights.shape, biases.shape)
probabilities = model.predict(x, verbose=0)
print((np.argmax(probabilities, axis=1) == y.argmax(axis=1)).mean())
bar = keras.utils.Progbar(10)
for i in range(10):
    bar.update(i + 1, [("loss", 0.1)])
print("final loss:", np.mean(losses))
