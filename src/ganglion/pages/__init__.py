"""Pages of HTML that are whole: one style, no network, no script but their own."""
