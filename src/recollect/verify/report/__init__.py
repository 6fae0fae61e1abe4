"""Reports: they render results and compute nothing."""
