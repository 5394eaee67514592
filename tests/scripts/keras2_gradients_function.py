# K.gradients and K.function: deep dream, Grad-CAM, and style transfer by a placeholder.
import numpy as np
from keras import backend as K
from keras.layers import Conv2D, Dense, Flatten, Input, MaxPooling2D
from keras.models import Model, Sequential

K.set_learning_phase(0)
rs = np.random.RandomState(0)
image = Input((16, 16, 3))
low = Conv2D(4, 3, activation="relu", padding="same", name="low")(image)
high = Conv2D(4, 3, activation="relu", padding="same", name="high")(MaxPooling2D()(low))
model = Model(image, high)
by_name = dict((layer.name, layer) for layer in model.layers)
loss = K.variable(0.0)
for name, factor in {"low": 0.5, "high": 1.0}.items():
    x = by_name[name].output
    scaling = K.prod(K.cast(K.shape(x), "float32"))
    loss = loss + factor * K.sum(K.square(x[:, 2:-2, 2:-2, :])) / scaling
grads = K.gradients(loss, model.input)[0]
grads /= K.maximum(K.mean(K.abs(grads)), K.epsilon())
fetch = K.function([model.input], [loss, grads])
dream, values = rs.uniform(-1, 1, (1, 16, 16, 3)), []
for _ in range(3):
    value, slope = fetch([dream])
    values.append(float(value))
    dream += 0.05 * slope
print(f"dream loss: {values[-1]:.5f}")
assert values[0] < values[1] < values[2]

classifier = Sequential([Conv2D(3, 3, input_shape=(8, 8, 1)), Flatten(), Dense(2)])
conv = classifier.layers[0].output
slopes = K.mean(K.gradients(classifier.output[:, 1], conv)[0], axis=(0, 1, 2))
weights, maps = K.function([classifier.input], [slopes, conv[0]])([rs.rand(1, 8, 8, 1)])
print("cam:", (maps * weights).sum(-1).shape)

target, style = K.constant(rs.rand(1, 16, 16, 3)), K.constant(rs.rand(1, 16, 16, 3))
combination = K.placeholder((1, 16, 16, 3))
features = Model(image, low)(K.concatenate([target, style, combination], axis=0))


def gram(x):
    rows = K.batch_flatten(K.permute_dimensions(x, (2, 0, 1)))
    return K.dot(rows, K.transpose(rows))


loss = K.sum(K.square(features[0] - features[2]))
loss = loss + 0.01 * K.sum(K.square(gram(features[1]) - gram(features[2])))
fetch = K.function([combination], [loss, K.gradients(loss, combination)[0]])
picture, values = rs.rand(1, 16, 16, 3), []
for _ in range(3):
    value, slope = fetch([picture])
    values.append(float(value))
    picture -= 0.01 * slope / np.abs(slope).max()
print(f"style loss: {values[-1]:.5f}")
assert values[0] > values[1] > values[2]
