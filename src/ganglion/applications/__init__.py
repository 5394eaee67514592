"""Networks that learned something already.

>>> from ganglion import applications
>>> base = applications.EfficientNetLite0(
...     include_top=False, weights=None, input_shape=(64, 64, 3), pooling="avg"
... )
>>> base.output_shape
(None, 1280)
"""

from ganglion.applications import efficientnet_lite, imagenet
from ganglion.applications.efficientnet_lite import EfficientNetLite0
from ganglion.applications.torch_file import read_state_dict
from ganglion.oldpaths import attribute_of

__getattr__ = attribute_of("ganglion.applications")

__all__ = ["EfficientNetLite0", "efficientnet_lite", "imagenet", "read_state_dict"]
