"""What training and serving share: the format, the engine, text, tables, metrics."""

__version__ = "0.1.0"
