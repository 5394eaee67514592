# U-Net for binary segmentation, as in the popular repository of 2017.
import numpy as np
from keras.models import *
from keras.layers import *
from keras.optimizers import *
from keras.callbacks import ModelCheckpoint, LearningRateScheduler
from keras import backend as keras


def unet(pretrained_weights=None, input_size=(32, 32, 1)):
    inputs = Input(input_size)
    conv1 = Conv2D(4, 3, activation='relu', padding='same', kernel_initializer='he_normal')(inputs)
    conv1 = Conv2D(4, 3, activation='relu', padding='same', kernel_initializer='he_normal')(conv1)
    pool1 = MaxPooling2D(pool_size=(2, 2))(conv1)
    conv2 = Conv2D(8, 3, activation='relu', padding='same', kernel_initializer='he_normal')(pool1)
    drop2 = Dropout(0.5)(conv2)
    pool2 = MaxPooling2D(pool_size=(2, 2))(drop2)
    conv3 = Conv2D(16, 3, activation='relu', padding='same', kernel_initializer='he_normal')(pool2)
    up4 = Conv2D(8, 2, activation='relu', padding='same', kernel_initializer='he_normal')(
        UpSampling2D(size=(2, 2))(conv3))
    merge4 = concatenate([drop2, up4], axis=3)
    conv4 = Conv2D(8, 3, activation='relu', padding='same', kernel_initializer='he_normal')(merge4)
    up5 = Conv2D(4, 2, activation='relu', padding='same', kernel_initializer='he_normal')(
        UpSampling2D(size=(2, 2))(conv4))
    merge5 = concatenate([conv1, up5], axis=3)
    conv5 = Conv2D(2, 3, activation='relu', padding='same', kernel_initializer='he_normal')(merge5)
    conv6 = Conv2D(1, 1, activation='sigmoid')(conv5)
    model = Model(input=inputs, output=conv6)
    model.compile(optimizer=Adam(lr=1e-3), loss='binary_crossentropy', metrics=['accuracy'])
    if pretrained_weights:
        model.load_weights(pretrained_weights)
    return model


def trainGenerator(batch_size):
    rng = np.random.RandomState(0)
    while True:
        mask = np.zeros((batch_size, 32, 32, 1))
        for one in mask:
            r, c = rng.randint(0, 20, 2)
            one[r:r + 12, c:c + 12] = 1
        yield mask * 0.7 + rng.rand(*mask.shape) * 0.3, mask


def testGenerator(n):
    for i in range(n):
        img = np.random.rand(32, 32, 1)
        img = np.reshape(img, (1,) + img.shape)
        yield img


myGene = trainGenerator(4)
model = unet()
model_checkpoint = ModelCheckpoint('unet_membrane.hdf5', monitor='loss', verbose=1, save_best_only=True)
history = model.fit_generator(myGene, steps_per_epoch=5, epochs=2, callbacks=[model_checkpoint])
results = model.predict_generator(testGenerator(3), 3, verbose=1)
print(results.shape)
model = unet('unet_membrane.hdf5')
print('final loss:', history.history['loss'][-1])
