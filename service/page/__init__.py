"""The page at `/`, and the list of calls at `/docs`: plain HTML, CSS and scripts that need nothing from outside."""
