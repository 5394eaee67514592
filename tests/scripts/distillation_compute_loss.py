# Knowledge distillation: a student learns from a teacher's soft labels.
import keras
import numpy as np
from keras import layers, ops

rng = np.random.default_rng(33)
x = rng.normal(size=(48, 6)).astype("float32")
y = np.abs(x[:, :3]).argmax(axis=1)


class Distiller(keras.Model):
    def __init__(self, student, teacher):
        super().__init__()
        self.student, self.teacher = student, teacher

    def compile(
        self,
        optimizer,
        metrics,
        student_loss_fn,
        distillation_loss_fn,
        alpha,
        temperature,
    ):
        super().compile(optimizer=optimizer, metrics=metrics)
        self.student_loss_fn = student_loss_fn
        self.distillation_loss_fn = distillation_loss_fn
        self.alpha, self.temperature = alpha, temperature

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training=True
    ):
        teacher_pred = self.teacher(x, training=False)
        student_loss = self.student_loss_fn(y, y_pred)
        distillation_loss = self.distillation_loss_fn(
            ops.softmax(teacher_pred / self.temperature, axis=1),
            ops.softmax(y_pred / self.temperature, axis=1),
        ) * (self.temperature**2)
        return self.alpha * student_loss + (1 - self.alpha) * distillation_loss

    def call(self, x):
        return self.student(x)


def network(width, name):
    return keras.Sequential(
        [keras.Input((6,)), layers.Dense(width, "relu"), layers.Dense(3)], name=name
    )


teacher, student = network(16, "teacher"), network(4, "student")
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
teacher.compile("adam", loss, metrics=["accuracy"])
history = teacher.fit(x, y, epochs=2, batch_size=12, verbose=0)
print(f"teacher loss: {history.history['loss'][0]:.5f}")
distiller = Distiller(student, teacher)
distiller.compile(
    optimizer=keras.optimizers.Adam(0.01),
    metrics=[keras.metrics.SparseCategoricalAccuracy()],
    student_loss_fn=loss,
    distillation_loss_fn=keras.losses.KLDivergence(),
    alpha=0.1,
    temperature=10,
)
history = distiller.fit(x, y, epochs=2, batch_size=12, verbose=0)
print(f"loss: {history.history['loss'][0]:.5f}")
print(f"second loss: {history.history['loss'][1]:.5f}")
