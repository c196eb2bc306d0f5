"""Training: the offline half of xreg, from data to model shards."""
