"""`ganglion.layers`: the building blocks of models, with Keras' names."""

from ganglion.layers import (
    activating,
    attention,
    augmentation,
    conv,
    dense,
    dropout,
    einsum_dense,
    foreign,
    inputs,
    masking,
    merging,
    multi_head,
    norm,
    pools,
    preprocessing,
    reversible,
    rnn,
    scaling,
    serialized,
    shape,
    spectral,
)
from ganglion.layers import weighted as weighted  # so that files find its layer
from ganglion.layers.activating import *
from ganglion.layers.attention import *
from ganglion.layers.augmentation import *
from ganglion.layers.base import InputSpec, Layer
from ganglion.layers.conv import *
from ganglion.layers.dense import *
from ganglion.layers.dropout import *
from ganglion.layers.einsum_dense import *
from ganglion.layers.foreign import *
from ganglion.layers.inputs import *
from ganglion.layers.masking import *
from ganglion.layers.merging import *
from ganglion.layers.merging import _Merge as _Merge  # scripts subclass it
from ganglion.layers.multi_head import *
from ganglion.layers.norm import *
from ganglion.layers.pools import *
from ganglion.layers.preprocessing import *
from ganglion.layers.reversible import *
from ganglion.layers.rnn import *
from ganglion.layers.scaling import *
from ganglion.layers.serialized import *
from ganglion.layers.shape import *
from ganglion.layers.spectral import *
from ganglion.oldpaths import attribute_of

# `keras.layers.core` and other paths of Keras 2.
__getattr__ = attribute_of("ganglion.layers")

__all__ = ["InputSpec", "Layer"]
__all__ += activating.__all__
__all__ += attention.__all__
__all__ += augmentation.__all__
__all__ += conv.__all__
__all__ += dense.__all__
__all__ += dropout.__all__
__all__ += einsum_dense.__all__
__all__ += inputs.__all__
__all__ += masking.__all__
__all__ += merging.__all__
__all__ += multi_head.__all__
__all__ += norm.__all__
__all__ += pools.__all__
__all__ += preprocessing.__all__
__all__ += rnn.__all__
__all__ += scaling.__all__
__all__ += shape.__all__
__all__ += foreign.__all__
__all__ += reversible.__all__
__all__ += serialized.__all__
__all__ += spectral.__all__
