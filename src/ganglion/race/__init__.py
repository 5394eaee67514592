"""The race: the same training in Ganglion and in its rivals, side by side."""
