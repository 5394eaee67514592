# An encoder and a decoder, trained with teacher forcing, then decoded greedily.
import keras
import numpy as np
from keras.layers import LSTM, Dense, Input
from keras.models import Model

rng = np.random.default_rng(41)
TOKENS, LENGTH, UNITS = 6, 4, 8
source = np.eye(TOKENS, dtype="float32")[rng.integers(0, TOKENS, size=(30, LENGTH))]
target = source[:, ::-1]
shifted = np.concatenate([np.zeros((30, 1, TOKENS), "float32"), target[:, :-1]], axis=1)

encoder_inputs = Input(shape=(None, TOKENS))
_, state_h, state_c = LSTM(UNITS, return_state=True)(encoder_inputs)
encoder_states = [state_h, state_c]
decoder_inputs = Input(shape=(None, TOKENS))
decoder_lstm = LSTM(UNITS, return_sequences=True, return_state=True)
decoder_outputs, _, _ = decoder_lstm(decoder_inputs, initial_state=encoder_states)
decoder_dense = Dense(TOKENS, activation="softmax")
model = Model([encoder_inputs, decoder_inputs], decoder_dense(decoder_outputs))
model.compile(
    optimizer="rmsprop", loss="categorical_crossentropy", metrics=["accuracy"]
)
history = model.fit([source, shifted], target, batch_size=10, epochs=2, verbose=0)
print(f"loss: {history.history['loss'][0]:.5f}")
print(f"second loss: {history.history['loss'][1]:.5f}")

encoder = Model(encoder_inputs, encoder_states)
state_inputs = [Input(shape=(UNITS,)), Input(shape=(UNITS,))]
outputs, h, c = decoder_lstm(decoder_inputs, initial_state=state_inputs)
decoder = Model([decoder_inputs, *state_inputs], [decoder_dense(outputs), h, c])
states = encoder.predict(source[:1], verbose=0)
token, decoded = np.zeros((1, 1, TOKENS), "float32"), []
for _ in range(LENGTH):
    scores, *states = decoder.predict([token, *states], verbose=0)
    decoded.append(int(scores[0, -1].argmax()))
    token = np.eye(TOKENS, dtype="float32")[[[decoded[-1]]]]
print("decoded:", len(decoded))
