"""LLM memory that is provably not forgotten."""
