"""HTML pages of one file: one style, no network, no script but their own."""
