"""Kept for its address, `recollect.recall.targets:recall`; the code is in `recollect.verify.recall_targets`."""

from recollect.verify.recall_targets import plain_chroma, recall, recall_pgvector

__all__ = ["plain_chroma", "recall", "recall_pgvector"]
