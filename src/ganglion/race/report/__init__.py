"""What a race measured, as a page, as Markdown and in the terminal."""
