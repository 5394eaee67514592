# Weight decay, averaged weights and clipping by the optimizer.
import keras
import numpy as np

rng = np.random.default_rng(55)
x, y = rng.normal(size=(24, 4)), rng.normal(size=(24, 1))
optimizers = {
    "ema": keras.optimizers.SGD(
        0.1, use_ema=True, ema_momentum=0.9, ema_overwrite_frequency=3
    ),
    "decay": keras.optimizers.AdamW(0.02, weight_decay=0.1),
    "clipped": keras.optimizers.Adam(0.02, clipvalue=0.05, amsgrad=True),
    "ftrl": keras.optimizers.Ftrl(0.1, l1_regularization_strength=0.01),
    "lamb": keras.optimizers.Lamb(0.05),
}
for name, optimizer in optimizers.items():
    model = keras.Sequential(
        [keras.Input((4,)), keras.layers.Dense(6, "relu"), keras.layers.Dense(1)]
    )
    model.compile(optimizer, "mse")
    history = model.fit(x, y, batch_size=8, epochs=2, verbose=0)
    print(f"{name} loss: {history.history['loss'][0]:.5f}")
    print(f"{name} second loss: {history.history['loss'][1]:.5f}")
