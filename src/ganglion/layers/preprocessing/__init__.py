"""Layers for text, categories and sound."""

from ganglion.layers.preprocessing.categories import CategoryEncoding, Discretization
from ganglion.layers.preprocessing.hashing import HashedCrossing, Hashing
from ganglion.layers.preprocessing.host import HostLayer as HostLayer
from ganglion.layers.preprocessing.lookup import IntegerLookup, StringLookup
from ganglion.layers.preprocessing.spectrograms import MelSpectrogram, STFTSpectrogram
from ganglion.layers.preprocessing.text_vectorization import TextVectorization

__all__ = [
    "CategoryEncoding",
    "Discretization",
    "HashedCrossing",
    "Hashing",
    "IntegerLookup",
    "MelSpectrogram",
    "STFTSpectrogram",
    "StringLookup",
    "TextVectorization",
]
