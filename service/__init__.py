"""Serving: the online half of xreg."""
