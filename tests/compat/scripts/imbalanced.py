# Imbalanced classification: metric objects, class_weight, initial bias.
import keras
import numpy as np

rng = np.random.default_rng(0)
train_features = rng.normal(size=(300, 12)).astype("float32")
train_targets = (train_features[:, :1] > 1.2).astype("uint8")
counts = np.bincount(train_targets[:, 0])
weight_for_0 = 1.0 / counts[0]
weight_for_1 = 1.0 / counts[1]
model = keras.Sequential(
    [
        keras.Input(shape=train_features.shape[1:]),
        keras.layers.Dense(32, activation="relu"),
        keras.layers.Dropout(0.3),
        keras.layers.Dense(
            1,
            activation="sigmoid",
            bias_initializer=keras.initializers.Constant(np.log(counts[1] / counts[0])),
        ),
    ]
)
metrics = [
    keras.metrics.FalseNegatives(name="fn"),
    keras.metrics.FalsePositives(name="fp"),
    keras.metrics.TrueNegatives(name="tn"),
    keras.metrics.TruePositives(name="tp"),
    keras.metrics.Precision(name="precision"),
    keras.metrics.Recall(name="recall"),
    keras.metrics.AUC(name="prc", curve="PR"),
    keras.metrics.F1Score(threshold=0.5),
]
model.compile(
    optimizer=keras.optimizers.Adam(1e-2), loss="binary_crossentropy", metrics=metrics
)
callbacks = [keras.callbacks.ModelCheckpoint("fraud_model_at_epoch_{epoch}.keras")]
class_weight = {0: weight_for_0, 1: weight_for_1}
history = model.fit(
    train_features,
    train_targets,
    batch_size=64,
    epochs=4,
    verbose=2,
    callbacks=callbacks,
    validation_data=(train_features, train_targets),
    class_weight=class_weight,
)
print(history.history["val_recall"])
print("final loss:", history.history["loss"][-1])
