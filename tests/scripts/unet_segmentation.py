# A U-Net in small, with a dice loss and a mean IoU.
import keras
import numpy as np
from keras import layers, ops


def dice_loss(y_true, y_pred):
    y_true, y_pred = ops.reshape(y_true, (-1,)), ops.reshape(y_pred, (-1,))
    overlap = ops.sum(y_true * y_pred)
    return 1 - (2 * overlap + 1) / (ops.sum(y_true) + ops.sum(y_pred) + 1)


def double_conv(x, filters):
    for _ in range(2):
        x = layers.Conv2D(filters, 3, padding="same", activation="relu")(x)
    return x


rng = np.random.default_rng(43)
images = rng.uniform(size=(16, 8, 8, 1)).astype("float32")
masks = (images > 0.6).astype("float32")
inputs = keras.Input((8, 8, 1))
skip = double_conv(inputs, 3)
h = double_conv(layers.MaxPooling2D()(skip), 6)
h = layers.Conv2DTranspose(3, 2, strides=2, padding="same")(h)
h = double_conv(layers.concatenate([h, skip]), 3)
outputs = layers.Conv2D(1, 1, activation="sigmoid")(h)
model = keras.Model(inputs, outputs)
model.compile(
    "adam",
    dice_loss,
    metrics=[keras.metrics.BinaryIoU(target_class_ids=[1], name="iou")],
)
history = model.fit(images, masks, batch_size=4, epochs=2, verbose=0)
print(f"loss: {history.history['loss'][0]:.5f}")
print(f"iou: {history.history['iou'][1]:.4f}")
