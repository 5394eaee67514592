"""Layers for text and categories: most run on the host, before the compiled step."""

from ganglion.layers.preprocessing.categories import CategoryEncoding, Discretization
from ganglion.layers.preprocessing.hashing import HashedCrossing, Hashing
from ganglion.layers.preprocessing.host import HostLayer as HostLayer
from ganglion.layers.preprocessing.lookup import IntegerLookup, StringLookup
from ganglion.layers.preprocessing.text_vectorization import TextVectorization

__all__ = [
    "CategoryEncoding",
    "Discretization",
    "HashedCrossing",
    "Hashing",
    "IntegerLookup",
    "StringLookup",
    "TextVectorization",
]
