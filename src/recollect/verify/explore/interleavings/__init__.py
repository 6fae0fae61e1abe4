"""Every order of a few concurrent operations, on a real engine: tried, judged, and replayed from a short string."""
