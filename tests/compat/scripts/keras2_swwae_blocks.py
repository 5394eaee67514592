# Pieces of older functional scripts: merge functions, Lambda, K functions, Model(input=).
import numpy as np
import keras
from keras.layers import (Activation, Add, AveragePooling2D, BatchNormalization, Conv2D, Cropping2D,
                          Dense, Dot, Dropout, ELU, Flatten, GlobalAveragePooling2D, Input, Lambda,
                          MaxPooling2D, Multiply, PReLU, Reshape, SpatialDropout2D, Subtract,
                          ThresholdedReLU, UpSampling2D, ZeroPadding2D, add, average, concatenate,
                          dot, maximum, multiply, subtract)
from keras.models import Model
import keras.backend as K
from keras.constraints import max_norm, non_neg, unit_norm
from keras.initializers import RandomNormal, VarianceScaling
from keras.utils import plot_model


def squeeze_excite_block(input, ratio=2):
    filters = K.int_shape(input)[-1]
    se = GlobalAveragePooling2D()(input)
    se = Reshape((1, 1, filters))(se)
    se = Dense(filters // ratio, activation='relu', kernel_initializer='he_normal', use_bias=False)(se)
    se = Dense(filters, activation='sigmoid', kernel_initializer='he_normal', use_bias=False)(se)
    return multiply([input, se])


def convresblock(x, nfeats=8, ksize=3, nskipped=2):
    y0 = Conv2D(nfeats, ksize, padding='same')(x)
    y = y0
    for i in range(nskipped):
        y = BatchNormalization(axis=-1)(y)
        y = Activation('relu')(y)
        y = Conv2D(nfeats, 1, padding='same')(y)
    return add([y0, y])


def dice_coef(y_true, y_pred):
    y_true_f = K.flatten(y_true)
    y_pred_f = K.flatten(y_pred)
    intersection = K.sum(y_true_f * y_pred_f)
    return (2. * intersection + 1.) / (K.sum(y_true_f) + K.sum(y_pred_f) + 1.)


def dice_coef_loss(y_true, y_pred):
    return -dice_coef(y_true, y_pred)


def recall(y_true, y_pred):
    true_positives = K.sum(K.round(K.clip(y_true * y_pred, 0, 1)))
    possible_positives = K.sum(K.round(K.clip(y_true, 0, 1)))
    return true_positives / (possible_positives + K.epsilon())


def binary_focal(gamma=2., alpha=.25):
    def loss(y_true, y_pred):
        pt_1 = K.switch(K.equal(y_true, 1), y_pred, K.ones_like(y_pred))
        pt_0 = K.switch(K.equal(y_true, 0), y_pred, K.zeros_like(y_pred))
        return -K.mean(alpha * K.pow(1. - pt_1, gamma) * K.log(pt_1 + 1e-7)) \
            - K.mean((1 - alpha) * K.pow(pt_0, gamma) * K.log(1. - pt_0 + 1e-7))
    return loss


img = Input(shape=(16, 16, 3))
x = Lambda(lambda t: t / 127.5 - 1.0)(img)
x = Lambda(lambda t: t[:, :, :, ::-1])(x)
x = convresblock(x)
x = ELU(alpha=1.0)(x)
x = squeeze_excite_block(x)
x = MaxPooling2D((2, 2), strides=(2, 2))(x)
x = ZeroPadding2D((1, 1))(x)
x = Cropping2D(((1, 1), (1, 1)))(x)
x = PReLU(shared_axes=[1, 2])(x)
x = SpatialDropout2D(0.1)(x)
x = UpSampling2D((2, 2))(x)
y = Conv2D(8, (3, 3), padding='same', kernel_constraint=max_norm(3.), name='skip',
           kernel_initializer=RandomNormal(stddev=0.02), bias_constraint=non_neg())(img)
x = concatenate([x, y, maximum([x, y]), average([x, y]), subtract([x, y])], axis=-1)
out = Conv2D(1, (1, 1), activation='sigmoid', name='mask')(x)
flat = Flatten()(x)
a = Dense(4, kernel_constraint=unit_norm(axis=0))(flat)
b = Dense(4, kernel_initializer=VarianceScaling(scale=2.0))(flat)
cosine = dot([a, b], axes=-1, normalize=True, name='cosine')
expanded = Lambda(lambda t: K.expand_dims(K.sum(t, axis=-1), -1), name='total')(a)
model = Model(inputs=img, outputs=[out, cosine, expanded])
model.compile(optimizer='nadam',
              loss={'mask': dice_coef_loss, 'cosine': 'mean_squared_error', 'total': 'hinge'},
              loss_weights={'mask': 1., 'cosine': 0.1, 'total': 0.1},
              metrics={'mask': [dice_coef, recall, 'acc']})
plot_model(model, to_file='model.dot', show_shapes=True, show_layer_names=True)
rng = np.random.RandomState(0)
X = rng.randint(0, 255, (32, 16, 16, 3))
M = (X.mean(axis=-1, keepdims=True) > 127).astype('float32')
history = model.fit(X, {'mask': M, 'cosine': np.zeros((32, 1)), 'total': np.ones((32, 1))},
                    batch_size=8, epochs=3, verbose=2)
print(sorted(history.history))
seg = Model(img, out)
seg.compile('adam', binary_focal(), metrics=[dice_coef])
history = seg.fit(X, M, batch_size=8, epochs=3, verbose=0)
print('final loss:', history.history['loss'][-1])
