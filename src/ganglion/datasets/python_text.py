"""Text that every Python has: its own documentation, character by character.

The text is that of `pydoc_data.topics`, which `help()` shows; it differs a little from
one version of Python to the next. Needs no download.
"""

import numpy as np

from ganglion.datasets import DataUnavailable

LENGTH = 128  # characters in a row
ALPHABET = "\n" + "".join(map(chr, range(32, 127)))
VOCABULARY = len(ALPHABET)
TEST_SHARE = 10  # every tenth part, from the end, is for the test
Rows = tuple[np.ndarray, np.ndarray]


def load_data(length: int = LENGTH) -> tuple[Rows, Rows]:
    """Return the text in rows, and in each row's place the characters that follow.

    >>> (x, y), (x_test, y_test) = load_data()
    >>> x.shape[1], bool((x[:, 1:] == y[:, :-1]).all()), len(x) > 8 * len(x_test)
    (128, True, True)
    """
    codes = encode(text())
    rows = (len(codes) - 1) // length
    x = codes[: rows * length].reshape(rows, length)
    y = codes[1 : rows * length + 1].reshape(rows, length)
    first = rows - rows // TEST_SHARE
    return (x[:first], y[:first]), (x[first:], y[first:])


def text() -> str:
    """Return the documentation as one text, topic by topic."""
    try:
        from pydoc_data.topics import topics
    except ImportError as error:
        raise DataUnavailable(
            "This Python came without its documentation (pydoc_data.topics); install "
            f"the whole of its standard library. ({error})"
        ) from None
    return "\n".join(topics[name] for name in sorted(topics))


def encode(text: str) -> np.ndarray:
    r"""Return characters as numbers below `VOCABULARY`; a "?" for those beyond ASCII.

    >>> encode("\nA–B").tolist()
    [0, 34, 32, 35]
    """
    codes = np.full(128, ALPHABET.index("?"), "int32")
    codes[[ord(character) for character in ALPHABET]] = np.arange(VOCABULARY)
    return codes[np.frombuffer(text.encode("ascii", "replace"), "uint8")]


def decode(codes: np.ndarray) -> str:
    """Return numbers as text.

    >>> decode(encode("print('hello')"))
    "print('hello')"
    """
    return "".join(ALPHABET[code] for code in np.ravel(codes))
