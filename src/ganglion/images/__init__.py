"""Folders of images: found, decoded once, split, and kept as integers.

    >>> from ganglion import images
    >>> data = images.load("photos", test=192)  # doctest: +SKIP
    >>> data.classes, data.train.x.shape, data.test.x.shape  # doctest: +SKIP
    (('cats', 'dogs'), (808, 96, 96, 3), (192, 96, 96, 3))

A folder holds a folder a class, or `train/` and `test/` with a folder a class each.
Decoding needs Pillow: `pip install "ganglion-nn[images]"`.
"""

from ganglion.images.decoding import Form, Unreadable, decode
from ganglion.images.finding import ImagesError, Listing, find, stratified
from ganglion.images.loading import ImageFolder, Images, load, read_files

__all__ = [
    "Form",
    "ImageFolder",
    "Images",
    "ImagesError",
    "Listing",
    "Unreadable",
    "decode",
    "find",
    "load",
    "read_files",
    "stratified",
]
