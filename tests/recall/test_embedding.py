"""Embedders: the hashing one never changes, the others are checked, and no two are ever mixed."""

import json
import subprocess
import sys
import types
from collections.abc import Sequence
from typing import Any

import httpx
import pytest

from recollect import MissingExtra, Refused
from recollect.recall import (
    EmbedderChanged,
    EmbeddingFailed,
    HashingEmbedder,
    OpenAIEmbedder,
    Progress,
    SentenceTransformerEmbedder,
)
from recollect.recall.memory import user_key
from recollect.recall.rows import Draft, MemoryWrite
from tests.recall.conftest import Place

# Written by release 0.1.0: place → value, as far as it is not zero. If these change, the name must change too.
GOLDEN: dict[str, dict[int, float]] = {
    "My name is Xiao Li": {
        7: 0.49235,
        13: -0.24617,
        22: -0.24617,
        24: 0.49235,
        27: 0.03939,
        34: 0.03939,
        48: -0.17232,
        55: -0.17232,
        56: -0.17232,
        57: -0.49235,
        62: 0.17232,
        63: 0.17232,
    },
    "名前は李です": {
        2: -0.31106,
        4: -0.31106,
        13: -0.15553,
        15: 0.15553,
        18: 0.15553,
        24: 0.62212,
        28: -0.10887,
        36: 0.41993,
        44: 0.10887,
        48: 0.15553,
        49: -0.10887,
        59: 0.31106,
        60: 0.04666,
        61: -0.10887,
    },
    "🎉": {20: 1.0},
    "the and of": {1: -0.57735, 40: -0.57735, 44: -0.57735},
}


def sparse(vector: Sequence[float]) -> dict[int, float]:
    return {place: round(value, 5) for place, value in enumerate(vector) if value}


@pytest.mark.parametrize("text", GOLDEN)
def test_the_hashing_embedder_gives_what_it_always_gave(text: str) -> None:
    embedder = HashingEmbedder(64)
    assert embedder.name == "recollect-hashing-v1-64"
    assert sparse(embedder.vector(text)) == pytest.approx(GOLDEN[text], abs=2e-5)


def test_every_process_gives_the_same_vector() -> None:
    code = (
        "from recollect.recall import HashingEmbedder; "
        "print(HashingEmbedder(64).vector('Xiao Li lives here').tobytes().hex())"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("0", "1")
    }
    assert outputs == {HashingEmbedder(64).vector("Xiao Li lives here").tobytes().hex() + "\n"}


def similarity(a: str, b: str) -> float:
    embedder = HashingEmbedder()
    return sum(x * y for x, y in zip(embedder.vector(a), embedder.vector(b), strict=True))


def test_it_is_lexical() -> None:
    assert similarity("The user's name is Xiao Li.", "what is my name?") > 0.4
    assert similarity("The user lives in Shanghai.", "where do I live?") > 0.15
    assert similarity("cafe\u0301 RÉSUMÉ", "Café résumé") == pytest.approx(1.0, abs=1e-6)
    assert abs(similarity("The user has a dog.", "puppies and hounds")) < 0.1


@pytest.mark.parametrize("text", ["", " ", "\ud800", "!!!", "a" * 100_000, "\0"])
def test_no_text_is_without_a_direction(text: str) -> None:
    vector = HashingEmbedder().vector(text)
    assert sum(value * value for value in vector) == pytest.approx(1.0, abs=1e-4)


def test_a_dimension_out_of_range_is_refused() -> None:
    with pytest.raises(Refused, match="16 to 4096"):
        HashingEmbedder(8)


def openai_embedder(handler: Any, dimension: int = 2) -> OpenAIEmbedder:
    embedder = OpenAIEmbedder("small", dimension, base_url="http://embeddings.test/v1", api_key="k")
    embedder._client = embedder._client.with_options(
        http_client=httpx.AsyncClient(transport=httpx.MockTransport(handler)), max_retries=0
    )
    return embedder


async def test_an_openai_endpoint_is_asked_and_its_vectors_are_made_unit() -> None:
    asked: list[dict[str, Any]] = []

    def handler(request: httpx.Request) -> httpx.Response:
        asked.append(json.loads(request.content))
        data = [
            {"object": "embedding", "index": 1, "embedding": [0.0, 2.0]},
            {"object": "embedding", "index": 0, "embedding": [3.0, 4.0]},
        ]
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        return httpx.Response(200, json={"object": "list", "data": data, "model": "small", "usage": usage})

    vectors = await openai_embedder(handler).embed(["a", "b"])
    assert asked[0]["input"] == ["a", "b"]
    assert [list(vector) for vector in vectors] == [pytest.approx([0.6, 0.8]), pytest.approx([0.0, 1.0])]


@pytest.mark.parametrize("embedding", [[1.0, 2.0, 3.0], [0.0, 0.0]])
async def test_vectors_that_cannot_be_used_are_refused(embedding: list[float]) -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        data = [{"object": "embedding", "index": 0, "embedding": embedding}]
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        return httpx.Response(200, json={"object": "list", "data": data, "model": "small", "usage": usage})

    with pytest.raises(EmbeddingFailed):
        await openai_embedder(handler).embed(["a"])


async def test_an_endpoint_that_fails_is_told_as_it_is() -> None:
    with pytest.raises(EmbeddingFailed, match="openai-small"):
        await openai_embedder(lambda request: httpx.Response(500, text="no")).embed(["a"])


async def test_a_local_model_is_loaded_through_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    class Model:
        def __init__(self, name: str) -> None:
            self.name = name

        def get_sentence_embedding_dimension(self) -> int:
            return 2

        def encode(self, texts: list[str]) -> list[list[float]]:
            return [[float(len(text)), 0.0] for text in texts]

    library = types.ModuleType("sentence_transformers")
    library.SentenceTransformer = Model  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sentence_transformers", library)
    embedder = SentenceTransformerEmbedder("tiny")
    assert (embedder.name, embedder.dimension, embedder.kind) == ("sentence-transformers-tiny", 2, "semantic")
    assert [list(vector) for vector in await embedder.embed(["abc"])] == [[1.0, 0.0]]


def test_a_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(MissingExtra, match=r"recollect\[local-embeddings\]"):
        SentenceTransformerEmbedder()


# ---- a changed embedder


async def test_another_embedder_is_refused(place: Place) -> None:
    async with place.open(embedder=HashingEmbedder(64)) as recall:
        await recall.add("u", ["The user has a cat."])
    with pytest.raises(EmbedderChanged, match=r"recollect-hashing-v1-64.*reembed=True"):
        await place.open(embedder=HashingEmbedder(128))
    async with place.open(embedder=HashingEmbedder(64)) as recall:
        assert len((await recall.search("u", "cat")).hits) == 1


async def test_or_everything_is_embedded_anew(place: Place) -> None:
    facts = [f"The user's number{n} is {n * 7}." for n in range(250)]
    async with place.open(embedder=HashingEmbedder(64)) as recall:
        await recall.add("u", facts)
        await recall.index_ready()
    seen: list[Progress] = []
    async with place.open(embedder=HashingEmbedder(128), reembed=True, on_progress=seen.append) as recall:
        assert any(progress.reason == "embedding anew" for progress in seen)
        await recall.index_ready()
        found = await recall.search("u", "number17", k=1)
        assert found.hits[0].memory.text == "The user's number17 is 119."
        assert found.method == ("index" if place.index else "scan")


async def test_an_interrupted_re_embedding_goes_on(place: Place) -> None:
    async with place.open(embedder=HashingEmbedder(64)) as recall:
        await recall.add("u", [f"The user's number{n} is {n}." for n in range(450)])

    class Stop(Exception):
        pass

    def stop(progress: Progress) -> None:
        raise Stop

    with pytest.raises(Stop):
        await place.open(embedder=HashingEmbedder(128), reembed=True, on_progress=stop)
    with pytest.raises(EmbedderChanged):
        await place.open(embedder=HashingEmbedder(64))
    async with place.open(embedder=HashingEmbedder(128)) as recall:
        rows = await recall.rows.newest(user_key("u"), None, 500)
        assert {len(row.vector) for row in rows} == {128 * 4}


async def test_a_process_with_the_old_embedder_cannot_write_any_more(place: Place) -> None:
    async with place.open(embedder=HashingEmbedder(64)) as old:
        await old.add("u", ["The user has a cat."])
        async with place.open(embedder=HashingEmbedder(128), reembed=True):
            with pytest.raises(EmbedderChanged, match="nothing was written"):
                await old.add("u", ["The user has a dog."])
            with pytest.raises(EmbedderChanged):
                await old.rows.write(MemoryWrite(user_key("u"), [Draft(b"{}", b"1234")], 1, turn=b"t"))
            assert len(await old.memories("u")) == 1
