"""What can go wrong while a data set is had; kept apart so that importing is cheap."""


class DataUnavailable(RuntimeError):  # noqa: N818 - said of data, it is the error
    """A data set can be had nowhere. The first line says so, the rest says why."""


class SourceError(Exception):
    """A source could not give its data; the text is the reason, in one line."""


class DamageError(Exception):
    """A file or download is not what it should be; the text says why, in one line."""


def one_line(error: BaseException) -> str:
    """An exception as one short line.

    >>> one_line(OSError(28, "No space left on device"))
    'No space left on device'
    """
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return " ".join(str(text).split())[:200]
