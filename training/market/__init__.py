"""A market of which the truth is known."""
