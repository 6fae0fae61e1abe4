"""Reports: they render results, they compute nothing."""
