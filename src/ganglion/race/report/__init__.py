"""The results of a race, as a page, as Markdown and in the terminal."""
