# U-Net-like segmentation with separable convolutions and residuals.
import keras
import numpy as np
from keras import layers

img_size = (32, 32)
num_classes = 3
rng = np.random.default_rng(0)
masks = np.zeros((24, *img_size, 1), "uint8")
for mask in masks:
    r, c = rng.integers(0, 20, 2)
    mask[r : r + 10, c : c + 10] = rng.integers(1, 3)
images = (masks / 2.0 + rng.normal(0, 0.2, masks.shape)).repeat(3, axis=-1)


def get_model(img_size, num_classes):
    inputs = keras.Input(shape=img_size + (3,))
    x = layers.Conv2D(8, 3, strides=2, padding="same")(inputs)
    x = layers.BatchNormalization()(x)
    x = layers.Activation("relu")(x)
    previous_block_activation = x
    for filters in [16, 24]:
        x = layers.Activation("relu")(x)
        x = layers.SeparableConv2D(filters, 3, padding="same")(x)
        x = layers.BatchNormalization()(x)
        x = layers.Activation("relu")(x)
        x = layers.SeparableConv2D(filters, 3, padding="same")(x)
        x = layers.BatchNormalization()(x)
        x = layers.MaxPooling2D(3, strides=2, padding="same")(x)
        residual = layers.Conv2D(filters, 1, strides=2, padding="same")(
            previous_block_activation
        )
        x = layers.add([x, residual])
        previous_block_activation = x
    for filters in [24, 16, 8]:
        x = layers.Activation("relu")(x)
        x = layers.Conv2DTranspose(filters, 3, padding="same")(x)
        x = layers.BatchNormalization()(x)
        x = layers.UpSampling2D(2)(x)
        residual = layers.UpSampling2D(2)(previous_block_activation)
        residual = layers.Conv2D(filters, 1, padding="same")(residual)
        x = layers.add([x, residual])
        previous_block_activation = x
    outputs = layers.Conv2D(num_classes, 3, activation="softmax", padding="same")(x)
    return keras.Model(inputs, outputs)


model = get_model(img_size, num_classes)
model.summary()
model.compile(
    optimizer=keras.optimizers.Adam(1e-2),
    loss="sparse_categorical_crossentropy",
    metrics=[keras.metrics.MeanIoU(num_classes, sparse_y_pred=False, name="iou")],
)
callbacks = [keras.callbacks.ModelCheckpoint("unet.keras", save_best_only=True)]
history = model.fit(
    images[:16],
    masks[:16],
    epochs=3,
    batch_size=8,
    validation_data=(images[16:], masks[16:]),
    callbacks=callbacks,
    verbose=2,
)
model = keras.saving.load_model("unet.keras")
val_preds = model.predict(images[16:])
mask = np.argmax(val_preds[0], axis=-1)
print(mask.shape)
print("final loss:", history.history["loss"][-1])
