"""A release's report: one page."""
