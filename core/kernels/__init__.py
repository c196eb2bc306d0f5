"""Numba kernels of the engine."""
