"""Models with steps of their own, written once for any engine that speaks Keras.

`models(keras, tape)` gives the classes of an engine: the code is that of Keras' guides.
Random numbers differ between engines, so noise comes with the data.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np


def models(keras: Any, tape: Any) -> SimpleNamespace:
    """Return the models of an engine, given its Keras and its gradient tape."""
    ops, layers = keras.ops, keras.layers

    class Plain(keras.Model):
        def train_step(self, data: Any) -> Any:
            x, y = data
            with tape() as t:
                y_pred = self(x, training=True)
                loss = self.compute_loss(x=x, y=y, y_pred=y_pred)
            weights = self.trainable_variables
            self.optimizer.apply(t.gradient(loss, weights), weights)
            for metric in self.metrics:
                if metric.name == "loss":
                    metric.update_state(loss)
                else:
                    metric.update_state(y, y_pred)
            return {m.name: m.result() for m in self.metrics}

        def test_step(self, data: Any) -> Any:
            x, y = data
            y_pred = self(x, training=False)
            return {"rmse": ops.sqrt(ops.mean((y - y_pred) ** 2))}

        def predict_step(self, data: Any) -> Any:
            x = data[0] if isinstance(data, tuple) else data
            return self(x, training=False) * 10.0

    class Gan(keras.Model):
        def __init__(self, discriminator: Any, generator: Any) -> None:
            super().__init__()
            self.discriminator, self.generator = discriminator, generator
            self.d_loss = keras.metrics.Mean(name="d_loss")
            self.g_loss = keras.metrics.Mean(name="g_loss")

        def compile(self, d_optimizer: Any, g_optimizer: Any, loss_fn: Any) -> None:
            super().compile()
            self.d_optimizer, self.g_optimizer = d_optimizer, g_optimizer
            self.loss_fn = loss_fn

        @property
        def metrics(self) -> Any:
            return [self.d_loss, self.g_loss]

        def train_step(self, data: Any) -> Any:
            real, noise = data
            rows = ops.shape(real)[0]
            both = ops.concatenate([self.generator(noise), real], axis=0)
            labels = ops.concatenate([ops.ones((rows, 1)), ops.zeros((rows, 1))])
            weights = self.discriminator.trainable_weights
            with tape() as t:
                d_loss = self.loss_fn(labels, self.discriminator(both))
            grads = t.gradient(d_loss, weights)
            self.d_optimizer.apply_gradients(zip(grads, weights, strict=True))
            weights = self.generator.trainable_weights
            with tape() as t:
                scores = self.discriminator(self.generator(noise))
                g_loss = self.loss_fn(ops.zeros((rows, 1)), scores)
            grads = t.gradient(g_loss, weights)
            self.g_optimizer.apply_gradients(zip(grads, weights, strict=True))
            self.d_loss.update_state(d_loss)
            self.g_loss.update_state(g_loss)
            return {"d_loss": self.d_loss.result(), "g_loss": self.g_loss.result()}

    class Wgan(Gan):
        def penalty(self, real: Any, fake: Any) -> Any:
            between = real + 0.3 * (fake - real)
            with tape() as t:
                t.watch(between)
                scores = self.discriminator(between, training=True)
            slopes = t.gradient(scores, [between])[0]
            norm = ops.sqrt(ops.sum(ops.square(slopes), axis=[1]))
            return ops.mean((norm - 1.0) ** 2)

        def train_step(self, data: Any) -> Any:
            real, noise = data
            for _ in range(3):
                weights = self.discriminator.trainable_variables
                with tape() as t:
                    fake = self.generator(noise, training=True)
                    d_loss = ops.mean(self.discriminator(fake, training=True))
                    d_loss -= ops.mean(self.discriminator(real, training=True))
                    d_loss += self.penalty(real, fake) * 10.0
                grads = t.gradient(d_loss, weights)
                self.d_optimizer.apply_gradients(zip(grads, weights, strict=True))
            weights = self.generator.trainable_variables
            with tape() as t:
                fake = self.generator(noise, training=True)
                g_loss = -ops.mean(self.discriminator(fake, training=True))
            grads = t.gradient(g_loss, weights)
            self.g_optimizer.apply_gradients(zip(grads, weights, strict=True))
            return {"d_loss": d_loss, "g_loss": g_loss}

    class Vae(keras.Model):
        def __init__(self, encoder: Any, decoder: Any, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            self.encoder, self.decoder = encoder, decoder
            names = ("loss", "reconstruction_loss", "kl_loss")
            self.trackers = [keras.metrics.Mean(name=name) for name in names]

        @property
        def metrics(self) -> Any:
            return list(self.trackers)

        def losses_of(self, data: Any) -> Any:
            x, noise = data
            mean, log_var = ops.split(self.encoder(x), 2, axis=1)
            z = mean + ops.exp(0.5 * log_var) * noise
            error = ops.mean(ops.sum((x - self.decoder(z)) ** 2, axis=1))
            kl = -0.5 * (1 + log_var - ops.square(mean) - ops.exp(log_var))
            kl = ops.mean(ops.sum(kl, axis=1))
            return error + kl, error, kl

        def train_step(self, data: Any) -> Any:
            with tape() as t:
                losses = self.losses_of(data)
            weights = self.trainable_weights
            grads = t.gradient(losses[0], weights)
            self.optimizer.apply_gradients(zip(grads, weights, strict=True))
            return self.tracked(losses)

        def test_step(self, data: Any) -> Any:
            return self.tracked(self.losses_of(data))

        def tracked(self, losses: Any) -> Any:
            for tracker, loss in zip(self.trackers, losses, strict=True):
                tracker.update_state(loss)
            return {m.name: m.result() for m in self.metrics}

    class Distiller(keras.Model):
        def __init__(self, student: Any, teacher: Any) -> None:
            super().__init__()
            self.student, self.teacher = student, teacher

        def compile(self, optimizer: Any, metrics: Any, student_loss: Any) -> None:
            super().compile(optimizer=optimizer, metrics=metrics)
            self.student_loss = student_loss

        def compute_loss(
            self,
            x: Any = None,
            y: Any = None,
            y_pred: Any = None,
            sample_weight: Any = None,
            training: bool = True,
        ) -> Any:
            soft = ops.softmax(self.teacher(x, training=False) / 3.0, axis=1)
            guess = ops.softmax(y_pred / 3.0, axis=1)
            divergence = keras.losses.KLDivergence()(soft, guess) * 9.0
            return 0.1 * self.student_loss(y, y_pred) + 0.9 * divergence

        def call(self, x: Any) -> Any:
            return self.student(x)

    class Accumulating(keras.Sequential):
        """Adds the gradients of two batches up, and counts its steps."""

        def make_sums(self) -> None:
            self.sums = [
                keras.Variable(ops.zeros(v.shape), trainable=False)
                for v in self.trainable_variables
            ]
            self.count = keras.Variable(0, dtype="int32", trainable=False)

        def train_step(self, data: Any) -> Any:
            x, y = data
            self.count.assign_add(1)
            with tape() as t:
                loss = self.compute_loss(y=y, y_pred=self(x, training=True))
            weights = self.trainable_variables
            is_due = ops.cast(self.count % 2 == 0, "float32")
            for total, grad in zip(self.sums, t.gradient(loss, weights), strict=True):
                total.assign_add(grad / 2.0)
            self.optimizer.apply([s * is_due for s in self.sums], weights)
            for total in self.sums:
                total.assign(total * (1.0 - is_due))
            return {"loss": loss}

    class Measured(keras.Sequential):
        """Reports more than its metrics, by a `compute_metrics` of its own."""

        def compute_metrics(
            self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None
        ) -> Any:
            logs = super().compute_metrics(x, y, y_pred, sample_weight)
            logs["largest"] = ops.max(ops.abs(y - y_pred))
            return logs

    class Twice(keras.Sequential):
        def train_step(self, data: Any) -> Any:
            first = super().train_step(data)["loss"]
            return {**super().train_step(data), "first": first}

    def dense(units: list[int], inputs: int, cls: Any = keras.Sequential) -> Any:
        stack = [layers.Dense(n, activation="tanh") for n in units[:-1]]
        return cls([keras.Input((inputs,)), *stack, layers.Dense(units[-1])])

    return SimpleNamespace(**locals())


def cases(m: SimpleNamespace) -> dict[str, Any]:
    """Return, by name, a model and the data it is trained on."""
    keras = m.keras
    rng = np.random.default_rng(0)
    x = rng.normal(size=(24, 3)).astype("float32")
    y = (x @ np.array([[1.0], [-2.0], [0.5]])).astype("float32")
    noise = rng.normal(size=(24, 2)).astype("float32")
    numbers = (y[:, 0] > 0).astype("int32")
    sgd, bce = keras.optimizers.SGD, keras.losses.BinaryCrossentropy(from_logits=True)

    inputs = keras.Input((3,))
    hidden = m.layers.Dense(4, activity_regularizer="l2")(inputs)
    plain = m.Plain(inputs, m.layers.Dense(1)(m.layers.BatchNormalization()(hidden)))
    plain.compile(sgd(0.1, momentum=0.5), "mse", metrics=["mae"])
    gan = m.Gan(m.dense([5, 1], 3), m.dense([5, 3], 2))
    gan.compile(sgd(0.1), keras.optimizers.Adam(0.01), bce)
    wgan = m.Wgan(m.dense([5, 1], 3), m.dense([5, 3], 2))
    wgan.compile(sgd(0.05), sgd(0.05), None)
    vae = m.Vae(m.dense([5, 4], 3), m.dense([5, 3], 2))
    vae.compile(optimizer=sgd(0.05))
    distiller = m.Distiller(m.dense([2], 3), m.dense([4, 2], 3))
    distiller.compile(
        sgd(0.5),
        [keras.metrics.SparseCategoricalAccuracy(name="hits")],
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    trained = {
        "plain": (plain, (x, y)),
        "gan": (gan, (x, noise)),
        "wgan": (wgan, (x, noise)),
        "vae": (vae, (x, noise)),
        "distiller": (distiller, (x, numbers)),
    }
    for name, cls in (
        ("accumulating", m.Accumulating),
        ("measured", m.Measured),
        ("twice", m.Twice),
    ):
        model = m.dense([4, 1], 3, cls)
        if cls is m.Accumulating:
            model.make_sums()
        # Keras wants every metric of `compile` to be updated in each step.
        metrics = None if cls is m.Accumulating else ["mae"]
        model.compile(sgd(0.1), "mse", metrics=metrics)
        trained[name] = model, (x, y)
    return trained
