# Reading characters without knowing where they are: CTC in a layer, and its decoders.
import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

draws = np.random.default_rng(0)
characters = list("abc12")
texts = np.array(["".join(draws.choice(characters, 4)) for _ in range(12)])
images = draws.random((12, 10, 24), dtype=np.float32)

char_to_num = layers.StringLookup(vocabulary=characters, mask_token=None)
num_to_char = layers.StringLookup(
    vocabulary=char_to_num.get_vocabulary(), mask_token=None, invert=True
)


def encode(image, text):
    image = ops.transpose(ops.expand_dims(image, -1), (1, 0, 2))
    letters = tf.strings.unicode_split(text, input_encoding="UTF-8")
    return {"image": image, "label": char_to_num(letters)}


data = tf.data.Dataset.from_tensor_slices((images, texts)).map(encode).batch(4)


class CTCLayer(layers.Layer):
    def call(self, y_true, y_pred):
        rows = ops.ones((ops.shape(y_true)[0],), dtype="int32")
        loss = tf.nn.ctc_loss(
            labels=ops.cast(y_true, "int32"),
            logits=ops.log(ops.transpose(y_pred, (1, 0, 2)) + keras.config.epsilon()),
            label_length=rows * ops.shape(y_true)[1],
            logit_length=rows * ops.shape(y_pred)[1],
            blank_index=-1,
        )
        self.add_loss(ops.mean(loss))
        return y_pred


image = keras.Input((24, 10, 1), name="image")
label = keras.Input((None,), name="label", dtype="int64")
x = layers.Conv2D(3, 3, activation="relu", padding="same")(image)
x = layers.MaxPooling2D((2, 1))(x)
x = layers.Reshape((12, 30))(x)
x = layers.Bidirectional(layers.LSTM(5, return_sequences=True))(x)
classes = len(char_to_num.get_vocabulary()) + 1
x = layers.Dense(classes, activation="softmax", name="classes")(x)
model = keras.Model([image, label], CTCLayer(name="ctc")(label, x))
model.compile(optimizer=keras.optimizers.Adam(0.01))
history = model.fit(data, epochs=2, verbose=0)
print(f"first loss: {history.history['loss'][0]:.4f}")
print(f"second loss: {history.history['loss'][1]:.4f}")

reader = keras.Model(model.input[0], model.get_layer("classes").output)
batch = next(iter(data))
scores = np.log(reader.predict(batch["image"], verbose=0)).transpose(1, 0, 2)
lengths = np.full(4, 12, dtype="int32")
for decode in (tf.nn.ctc_greedy_decoder, tf.nn.ctc_beam_search_decoder):
    (path,), likelihood = decode(scores, lengths)
    found = tf.sparse.to_dense(tf.SparseTensor(path.indices, path.values, (4, 12)))
    print(found.numpy().tolist(), likelihood.shape)
    print(tf.strings.reduce_join(num_to_char(found[0])).numpy().decode())
