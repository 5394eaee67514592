"""What can be wrong with a folder of images."""


class ImagesError(ValueError):
    """A folder that cannot be trained on; says why, and what to do."""
