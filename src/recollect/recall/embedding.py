"""Embedders turn text into a vector of fixed length.

`HashingEmbedder` is the default: no download, no network, the same vector in every process and release. It is
*lexical*: it finds shared words, parts of words and neighbouring words, not meanings. Its name carries a version; a
change to the algorithm is a new name, because vectors of two embedders must never be compared.

`OpenAIEmbedder` speaks to any endpoint with OpenAI's embeddings API; `SentenceTransformerEmbedder` runs a model in the
process. Both need an extra, and say which when it is missing.
"""

import asyncio
import importlib
import math
import re
import unicodedata
import zlib
from array import array
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from recollect.errors import CannotOpen, MissingExtra, RecollectError, Refused
from recollect.secret import SecretUrl, scrub

Vector = array
"""Single-precision floats (type code ``f``) of length 1, which is what rows and indexes keep."""


class EmbedderChanged(CannotOpen):
    """The memory was embedded by another embedder; the two must not be mixed."""


class EmbeddingFailed(RecollectError):
    """The embedder gave no usable vector. Nothing was written."""


@runtime_checkable
class Embedder(Protocol):
    @property
    def name(self) -> str:
        """Stored with the memory: the model and its version. Embedders with the same name must give equal vectors."""
        ...

    @property
    def dimension(self) -> int: ...

    @property
    def kind(self) -> str:
        """``lexical`` (finds words) or ``semantic`` (finds meanings)."""
        ...

    async def embed(self, texts: Sequence[str]) -> list["Vector[float]"]: ...


_WORD = re.compile(r"[^\W_]+", re.UNICODE)
_COMMON = frozenset(
    """
    a am an and are as at be been but by can could did do does for from had has have he her him his
    how i if in is it its me my of on or our she so some than that the their them then there they
    this to us user was we were what when where which who whom why will with would you your s t m re
    ve ll d
    """.split()  # noqa: SIM905 - ninety strings in quotes are harder to read
)
_COMMON_WEIGHT = 0.08
"""Common words say little; they still count a bit, so that a text of nothing else has a vector."""
_PART_WEIGHT = 0.35
_PAIR_WEIGHT = 0.5
_PART_LENGTH = 4


class HashingEmbedder:
    """Words, parts of words and pairs of words, hashed into a fixed number of slots. Lexical, not semantic."""

    kind = "lexical"

    def __init__(self, dimension: int = 512) -> None:
        if not 16 <= dimension <= 4096:
            raise Refused(f"dimension: 16 to 4096, not {dimension}")
        self.dimension = dimension
        self.name = f"recollect-hashing-v1-{dimension}"

    async def embed(self, texts: Sequence[str]) -> list["Vector[float]"]:
        return [self.vector(text) for text in texts]

    def vector(self, text: str) -> "Vector[float]":
        slots = [0.0] * self.dimension
        # A text without any word, such as a lone emoji, is one feature as a whole, so that no vector is all zeros.
        for feature, weight in _features(text) or [(f"t {text}", 1.0)]:
            # The low bits choose the slot, a high one the sign: collisions then cancel out as often as they add up.
            hashed = zlib.crc32(feature.encode("utf-8", "surrogatepass"))
            hashed = (hashed ^ (hashed >> 15)) * 0x2C1B3C6D & 0xFFFFFFFF
            slots[(hashed ^ (hashed >> 12)) % self.dimension] += weight if hashed >> 31 else -weight
        return unit(slots)


def _features(text: str) -> list[tuple[str, float]]:
    words = _words(text)
    features: list[tuple[str, float]] = []
    previous = ""
    for word in words:
        common = word in _COMMON
        features.append((f"w {word}", _COMMON_WEIGHT if common else 1.0))
        if not common:
            marked = f"^{word}"
            features += [
                (f"p {marked[start : start + _PART_LENGTH]}", _PART_WEIGHT)
                for start in range(max(1, len(marked) - _PART_LENGTH + 1))
            ]
            if previous:
                features.append((f"b {previous} {word}", _PAIR_WEIGHT))
            previous = word
    return features


def _words(text: str) -> list[str]:
    words: list[str] = []
    for found in _WORD.findall(unicodedata.normalize("NFKC", text).casefold()):
        # Scripts without spaces: each character counts as a word, and the pairs do the rest.
        words += list(found) if any(ord(character) >= 0x2E80 for character in found) else [_stem(found)]
    return words


def _stem(word: str) -> str:
    """English plurals and third person: `lives` and `live` are one word here."""
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


def unit(values: Sequence[float]) -> "Vector[float]":
    """The vector of length 1 in the same direction, in the precision that is stored."""
    length = math.sqrt(math.fsum(value * value for value in values))
    if not math.isfinite(length) or length == 0:
        raise EmbeddingFailed("the embedder gave a vector without a direction: zeros, or not finite numbers")
    return array("f", [value / length for value in values])


def _checked(
    name: str, dimension: int, texts: Sequence[str], vectors: Sequence[Sequence[float]]
) -> list[Any]:
    if len(vectors) != len(texts) or any(len(vector) != dimension for vector in vectors):
        found = sorted({len(vector) for vector in vectors})
        raise EmbeddingFailed(
            f"{name} gave {len(vectors)} vectors of {found} numbers for {len(texts)} texts; expected {dimension} each"
        )
    return [unit(vector) for vector in vectors]


class OpenAIEmbedder:
    """Any endpoint with OpenAI's embeddings API (`base_url`); the key is read from OPENAI_API_KEY if not given."""

    kind = "semantic"

    def __init__(
        self,
        model: str,
        dimension: int,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout_s: float = 30.0,
    ) -> None:
        openai = _import("openai", "chat")
        self.name = f"openai-{model}"
        self.dimension = dimension
        self._model = model
        self._base_url = None if base_url is None else SecretUrl(base_url)
        self._client = openai_client(openai, base_url, api_key, timeout_s)

    async def embed(self, texts: Sequence[str]) -> list["Vector[float]"]:
        if not texts:
            return []
        try:
            answer = await self._client.embeddings.create(
                model=self._model, input=list(texts), encoding_format="float"
            )
        except Exception as error:
            reason = scrub(str(error), self._base_url)
            raise EmbeddingFailed(f"{self.name}: {type(error).__name__}: {reason}") from None
        ordered = sorted(answer.data, key=lambda item: int(item.index))
        return _checked(self.name, self.dimension, texts, [item.embedding for item in ordered])


class SentenceTransformerEmbedder:
    """A model of the sentence-transformers library, run in a thread of this process."""

    kind = "semantic"

    def __init__(self, model: str = "sentence-transformers/all-MiniLM-L6-v2") -> None:
        library = _import("sentence_transformers", "local-embeddings")
        self._model = library.SentenceTransformer(model)
        self.name = f"sentence-transformers-{model}"
        self.dimension = int(self._model.get_sentence_embedding_dimension())

    async def embed(self, texts: Sequence[str]) -> list["Vector[float]"]:
        if not texts:
            return []
        vectors = await asyncio.to_thread(self._model.encode, list(texts))
        return _checked(self.name, self.dimension, texts, [[float(x) for x in vector] for vector in vectors])


def _import(module: str, extra: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtra(f"{module} is not installed: pip install 'recollect[{extra}]'") from error


def openai_client(openai: Any, base_url: str | None, api_key: str | None, timeout_s: float) -> Any:
    try:
        return openai.AsyncOpenAI(base_url=base_url, api_key=api_key, timeout=timeout_s)
    except openai.OpenAIError:  # it only looks whether there is a key
        raise CannotOpen(
            "no key for OpenAI's API: set OPENAI_API_KEY, or pass api_key=; an endpoint that wants none takes any text"
        ) from None
