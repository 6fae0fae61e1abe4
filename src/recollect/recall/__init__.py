"""Long-term memory: what is worth remembering about a user, found again by what it is about.

    from recollect import Message
    from recollect.recall import open_recall

    async with open_recall("sqlite:///memory.db", index="chroma:///memory.index") as recall:
        await recall.remember("xiao", [Message("user", "My name is Xiao Li.")])
        await recall.context("xiao", "what is my name?", budget_tokens=500)

`docs/recall.md` says what is kept where, and what each failure can and cannot do.
"""

from recollect.recall.embedding import (
    Embedder,
    EmbedderChanged,
    EmbeddingFailed,
    HashingEmbedder,
    OpenAIEmbedder,
    SentenceTransformerEmbedder,
)
from recollect.recall.index import IndexBroken
from recollect.recall.indexing import Progress
from recollect.recall.llm import LLM, ModelFailed, OpenAIModel, StandIn
from recollect.recall.memory import Hit, IndexState, Memory, Remembered, Search
from recollect.recall.opening import open_recall
from recollect.recall.recall import Recall

__all__ = [
    "LLM",
    "Embedder",
    "EmbedderChanged",
    "EmbeddingFailed",
    "HashingEmbedder",
    "Hit",
    "IndexBroken",
    "IndexState",
    "Memory",
    "ModelFailed",
    "OpenAIEmbedder",
    "OpenAIModel",
    "Progress",
    "Recall",
    "Remembered",
    "Search",
    "SentenceTransformerEmbedder",
    "StandIn",
    "open_recall",
]
