"""From a data set of clicks to a published release."""
