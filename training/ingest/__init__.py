"""From click logs to a data set of clicks."""
