# Time-series classification and anomaly detection with Conv1D.
import keras
import numpy as np
from keras import layers

rng = np.random.default_rng(0)
t = np.linspace(0, 6, 48)
y_train = rng.integers(0, 2, 120)
x_train = np.sin(t[None] * (1 + y_train[:, None])) + rng.normal(0, 0.2, (120, 48))
x_train = x_train.reshape((x_train.shape[0], x_train.shape[1], 1))
idx = np.random.permutation(len(x_train))
x_train, y_train = x_train[idx], y_train[idx]


def make_model(input_shape):
    input_layer = keras.layers.Input(input_shape)
    conv1 = keras.layers.Conv1D(filters=16, kernel_size=3, padding="same")(input_layer)
    conv1 = keras.layers.BatchNormalization()(conv1)
    conv1 = keras.layers.ReLU()(conv1)
    conv2 = keras.layers.Conv1D(16, 3, padding="causal", dilation_rate=2)(conv1)
    conv2 = keras.layers.BatchNormalization()(conv2)
    conv2 = keras.layers.ReLU()(conv2)
    gap = keras.layers.GlobalAveragePooling1D()(conv2)
    output_layer = keras.layers.Dense(2, activation="softmax")(gap)
    return keras.models.Model(inputs=input_layer, outputs=output_layer)


model = make_model(input_shape=x_train.shape[1:])
callbacks = [
    keras.callbacks.ModelCheckpoint(
        "best_model.keras", save_best_only=True, monitor="val_loss"
    ),
    keras.callbacks.ReduceLROnPlateau(
        monitor="val_loss", factor=0.5, patience=20, min_lr=0.0001
    ),
    keras.callbacks.EarlyStopping(monitor="val_loss", patience=50, verbose=1),
]
model.compile(
    optimizer="adam",
    loss="sparse_categorical_crossentropy",
    metrics=["sparse_categorical_accuracy"],
)
history = model.fit(
    x_train,
    y_train,
    batch_size=16,
    epochs=3,
    callbacks=callbacks,
    validation_split=0.2,
    verbose=1,
)
model = keras.models.load_model("best_model.keras")
print(model.evaluate(x_train, y_train))

anomaly = keras.Sequential(
    [
        layers.Input(shape=(x_train.shape[1], x_train.shape[2])),
        layers.Conv1D(
            filters=8, kernel_size=7, padding="same", strides=2, activation="relu"
        ),
        layers.Dropout(rate=0.2),
        layers.Conv1D(
            filters=4, kernel_size=7, padding="same", strides=2, activation="relu"
        ),
        layers.Conv1DTranspose(
            filters=4, kernel_size=7, padding="same", strides=2, activation="relu"
        ),
        layers.Dropout(rate=0.2),
        layers.Conv1DTranspose(
            filters=8, kernel_size=7, padding="same", strides=2, activation="relu"
        ),
        layers.Conv1DTranspose(filters=1, kernel_size=7, padding="same"),
    ]
)
anomaly.compile(optimizer=keras.optimizers.Adam(learning_rate=0.005), loss="mse")
history = anomaly.fit(
    x_train,
    x_train,
    epochs=3,
    batch_size=32,
    validation_split=0.1,
    callbacks=[
        keras.callbacks.EarlyStopping(monitor="val_loss", patience=5, mode="min")
    ],
    verbose=0,
)
x_train_pred = anomaly.predict(x_train, verbose=0)
train_mae_loss = np.mean(np.abs(x_train_pred - x_train), axis=1)
print("Reconstruction error threshold: ", np.max(train_mae_loss))
print("final loss:", history.history["loss"][-1])
