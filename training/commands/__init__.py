"""What the `xreg` command does, by kind of work."""
