"""Low-rank adaptation: the product of two thin matrices is added to a frozen weight."""

from __future__ import annotations

from typing import Any

from ganglion import ops
from ganglion.layers.base import Layer
from ganglion.variables import Variable


def adapted(name: str) -> Any:
    """Return the property of the weight that low-rank weights adapt."""

    def keep(self: Adaptable, variable: Any) -> None:
        setattr(self, f"_{name}", variable)

    return property(lambda self: self._adapted_weight(), keep)


class Adaptable(Layer):
    """A layer with a large weight, its `adapted_name`, that low-rank weights can adapt.

    With them, the weight is read and saved as ``weight + alpha / rank * a @ b``.
    """

    adapted_name = "kernel"
    lora_rank: int | None = None
    lora_alpha: float | None = None
    lora_enabled = False
    _full_shape: tuple[int, ...] | None = None  # where the weight is kept in another

    def _enable_chosen_lora(self) -> None:
        """Add the low-rank weights that the constructor asked for."""
        if self.lora_rank:
            self.built = True
            self.enable_lora(self.lora_rank, self.lora_alpha)

    @property
    def _plain(self) -> Any:
        return vars(self)[f"_{self.adapted_name}"]

    def _low_rank(self) -> tuple[Variable, Variable]:
        first, second = (vars(self)[f"lora_{self.adapted_name}_{x}"] for x in "ab")
        return first, second

    def _adapted_weight(self) -> Any:
        """Return the weight as the layer computes with it."""
        if not self.built and f"_{self.adapted_name}" not in vars(self):
            raise AttributeError(
                f"Build the layer before accessing `{self.adapted_name}`: call it, or "
                "call `build(input_shape)`."
            )
        plain = self._base_weight()
        if not self.lora_enabled:
            return plain
        assert self.lora_alpha is not None
        assert self.lora_rank is not None
        change = ops.matmul(*self._low_rank()) * (self.lora_alpha / self.lora_rank)
        return ops.cast(ops.add(plain, change), self.compute_dtype)

    def _base_weight(self) -> Any:
        """Return the weight without its change."""
        return self._plain

    def enable_lora(
        self,
        rank: int,
        lora_alpha: float | None = None,
        a_initializer: Any = "he_uniform",
        b_initializer: Any = "zeros",
    ) -> None:
        """Freeze the weight, and let two of this rank learn its change."""
        name = self.adapted_name
        if getattr(self, f"{name}_constraint", None) is not None:
            raise ValueError(
                f"Lora is incompatible with {name.removesuffix('s')} constraints. In "
                "order to enable lora on this layer, remove the "
                f"`{name}_constraint` argument."
            )
        if not self.built:
            raise ValueError(
                "Cannot enable lora on a layer that isn't yet built: call it on data, "
                "or call `build(input_shape)` first."
            )
        if self.lora_enabled:
            raise ValueError(
                "lora is already enabled. This can only be done once per layer."
            )
        *before, last = self._full_shape or self._plain.shape
        # In float32 whatever the weight is: their changes are small.
        options = {
            "dtype": "float32",
            "regularizer": getattr(self, f"{name}_regularizer", None),
        }
        for end, shape, initializer in (
            ("a", (*before, rank), a_initializer),
            ("b", (rank, last), b_initializer),
        ):
            variable = self.add_weight(
                shape, initializer, name=f"lora_{name}_{end}", **options
            )
            setattr(self, f"lora_{name}_{end}", variable)
        self._plain.trainable = False
        self.lora_enabled, self.lora_rank = True, rank
        self.lora_alpha = rank if lora_alpha is None else lora_alpha

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        chosen = {"lora_rank": self.lora_rank, "lora_alpha": self.lora_alpha}
        for name, value in chosen.items():  # as in Keras, if there is any
            config.pop(name, None)
            if self.lora_rank:
                config[name] = value
        return config

    # ---- files: a single weight, as if it had been trained without LoRA --------------

    @property
    def saves_plainly(self) -> bool:
        """Whether a file holds the variables as they are."""
        return not self.lora_enabled

    def save_own_variables(self, store: Any) -> None:
        if self.saves_plainly:
            super().save_own_variables(store)
            return
        for number, variable in enumerate(self._saved_variables()):
            is_adapted = variable is vars(self).get(f"_{self.adapted_name}")
            store[str(number)] = (
                self._adapted_weight() if is_adapted else variable.array
            )

    def load_own_variables(self, store: Any) -> None:
        if self.saves_plainly:
            super().load_own_variables(store)
            return
        for number, variable in enumerate(self._saved_variables()):
            variable.assign(store[str(number)])
        if self.lora_enabled:  # the change is part of the weight now
            for variable in self._low_rank():
                variable.assign(ops.zeros(variable.shape))

    def _saved_variables(self) -> list[Variable]:
        bias = getattr(self, "bias", None)
        return [self._plain] if bias is None else [self._plain, bias]
