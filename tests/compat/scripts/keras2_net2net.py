'''Net2Net weight surgery (Keras 2 examples).'''
from __future__ import print_function
import numpy as np
import keras
from keras.models import Sequential
from keras.layers import Conv2D, MaxPooling2D, Dense, Flatten
from keras.optimizers import SGD

input_shape = (28, 28, 1)
num_classes = 10
epochs = 2
rng = np.random.RandomState(0)
labels = rng.randint(0, 10, 96)
x_train = rng.rand(96, 28, 28, 1) * 0.3
for image, label in zip(x_train, labels):
    image[2 * label:2 * label + 3] += 0.6
y_train = keras.utils.to_categorical(labels)


def wider2net_conv2d(teacher_w1, teacher_b1, teacher_w2, new_width):
    n = new_width - teacher_w1.shape[3]
    origin = teacher_w1.shape[3]
    index = np.random.randint(teacher_w1.shape[3], size=n)
    factors = np.bincount(index)[index] + 1.
    tmp_w1 = teacher_w1[:, :, :, index]
    tmp_w2 = teacher_w2[:, :, index, :] / factors.reshape((1, 1, -1, 1))
    noise = np.random.normal(0, 5e-2 * tmp_w2.std(), size=tmp_w2.shape)
    student_w1 = np.concatenate((teacher_w1, tmp_w1), axis=3)
    student_w2 = np.concatenate((teacher_w2, tmp_w2 + noise), axis=2)
    student_w2[:, :, index, :] = tmp_w2
    student_b1 = np.concatenate((teacher_b1, teacher_b1[index]), axis=0)
    return student_w1, student_b1, student_w2


def deeper2net_conv2d(teacher_w):
    kh, kw, num_channel, filters = teacher_w.shape
    student_w = np.zeros_like(teacher_w, shape=(kh, kw, filters, filters))
    for i in range(filters):
        student_w[(kh - 1) // 2, (kw - 1) // 2, i, i] = 1.
    return student_w, np.zeros(filters)


def copy_weights(teacher_model, student_model, layer_names):
    for name in layer_names:
        weights = teacher_model.get_layer(name=name).get_weights()
        student_model.get_layer(name=name).set_weights(weights)


def make_teacher_model(x_train, y_train, epochs):
    model = Sequential()
    model.add(Conv2D(8, 3, input_shape=input_shape, padding='same', name='conv1'))
    model.add(MaxPooling2D(2, name='pool1'))
    model.add(Conv2D(8, 3, padding='same', name='conv2'))
    model.add(MaxPooling2D(2, name='pool2'))
    model.add(Flatten(name='flatten'))
    model.add(Dense(16, activation='relu', name='fc1'))
    model.add(Dense(num_classes, activation='softmax', name='fc2'))
    model.compile(loss='categorical_crossentropy',
                  optimizer=SGD(lr=0.01, momentum=0.9),
                  metrics=['accuracy'])
    model.fit(x_train, y_train, epochs=epochs, verbose=2, validation_data=(x_train, y_train))
    return model


def make_wider_student_model(teacher_model, x_train, y_train, epochs):
    new_conv1_width = 12
    model = Sequential()
    model.add(Conv2D(new_conv1_width, 3, input_shape=input_shape, padding='same', name='conv1'))
    model.add(MaxPooling2D(2, name='pool1'))
    model.add(Conv2D(8, 3, padding='same', name='conv2'))
    model.add(MaxPooling2D(2, name='pool2'))
    model.add(Flatten(name='flatten'))
    model.add(Dense(16, activation='relu', name='fc1'))
    model.add(Dense(num_classes, activation='softmax', name='fc2'))
    w_conv1, b_conv1 = teacher_model.get_layer('conv1').get_weights()
    w_conv2, b_conv2 = teacher_model.get_layer('conv2').get_weights()
    new_w_conv1, new_b_conv1, new_w_conv2 = wider2net_conv2d(
        w_conv1, b_conv1, w_conv2, new_conv1_width)
    model.get_layer('conv1').set_weights([new_w_conv1, new_b_conv1])
    model.get_layer('conv2').set_weights([new_w_conv2, b_conv2])
    copy_weights(teacher_model, model, layer_names=['fc1', 'fc2'])
    model.compile(loss='categorical_crossentropy',
                  optimizer=SGD(lr=0.001, momentum=0.9),
                  metrics=['accuracy'])
    model.fit(x_train, y_train, epochs=epochs, verbose=2, validation_data=(x_train, y_train))
    return model


def make_deeper_student_model(teacher_model, x_train, y_train, epochs):
    model = Sequential()
    model.add(Conv2D(8, 3, input_shape=input_shape, padding='same', name='conv1'))
    model.add(MaxPooling2D(2, name='pool1'))
    model.add(Conv2D(8, 3, padding='same', name='conv2'))
    prev_w, _ = teacher_model.get_layer('conv2').get_weights()
    new_weights = deeper2net_conv2d(prev_w)
    model.add(Conv2D(8, 3, padding='same', name='conv2-deeper', weights=new_weights))
    model.add(MaxPooling2D(2, name='pool2'))
    model.add(Flatten(name='flatten'))
    model.add(Dense(16, activation='relu', name='fc1'))
    model.add(Dense(16, init='identity', activation='relu', name='fc1-deeper'))
    model.add(Dense(num_classes, activation='softmax', name='fc2'))
    copy_weights(teacher_model, model, ['conv1', 'conv2', 'fc1', 'fc2'])
    model.compile(loss='categorical_crossentropy',
                  optimizer=SGD(lr=0.001, momentum=0.9),
                  metrics=['accuracy'])
    return model.fit(x_train, y_train, epochs=epochs, verbose=2,
                     validation_data=(x_train, y_train))


teacher = make_teacher_model(x_train, y_train, epochs)
make_wider_student_model(teacher, x_train, y_train, epochs)
history = make_deeper_student_model(teacher, x_train, y_train, epochs)
print('final loss:', history.history['loss'][-1])
