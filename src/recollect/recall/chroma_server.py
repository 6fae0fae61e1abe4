"""A Chroma server as a vector index, over its HTTP API (v2).

It does not use chromadb's client, which waits for ever for a silent server, shares connections between everything in
the process that uses the same address, and takes seconds to import.

Any number of processes can share the index. Changes that another process has already applied, according to the marker,
are left out; two that apply the same changes at once do no harm. The collection's name carries the rows' identity and
a growing number: an index in doubt is abandoned, not repaired.

A collection is created with its own random name in its metadata. Only such a collection is read, or deleted once it
has been replaced: one that merely has a name like ours, or is a copy, belongs to somebody else.
"""

import uuid
from array import array
from collections.abc import Sequence
from typing import Any

import msgspec

from recollect.erasure import Unreached
from recollect.errors import CannotOpen, MissingExtra
from recollect.recall.chroma_items import MARKER, configuration, deleted, marker_of, near, upserted
from recollect.recall.index import SYNC_THRESHOLD, IndexBroken, IndexMarker, Near
from recollect.recall.rows import Change
from recollect.secret import scrub, shown

try:
    import httpx
except ImportError as missing:
    raise MissingExtra("a Chroma server needs httpx: pip install 'recollect[chroma]'") from missing

_COLLECTIONS = "/api/v2/tenants/default_tenant/databases/default_database/collections"
_PAGE = 100
_MADE_AS = "recollect-index"
"""The field of a collection's metadata that holds the name we created it with."""


class ChromaServerIndex:
    name = "chroma (server)"

    def __init__(
        self, url: str, rows: str, timeout_s: float = 10.0, sync_threshold: int = SYNC_THRESHOLD
    ) -> None:
        try:
            secure = url.startswith("https:")  # else certificates would be loaded for nothing
            self._http = httpx.AsyncClient(base_url=url, timeout=timeout_s, verify=secure)
        except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            reason = scrub(str(error), url)
            raise CannotOpen(f"{shown(url)}: a Chroma server is http://host:port ({reason})") from None
        self._prefix = f"recall-{rows}-"
        self._sync_threshold = sync_threshold
        self._collection: str | None = None

    async def open(self) -> IndexMarker | None:
        self._collection = None
        found = await self._ours()
        if not found:
            return None
        self._collection = found[-1]["id"]
        return await self._marker()

    async def _marker(self) -> IndexMarker | None:
        answer = await self._ask("get", {"ids": [MARKER], "include": ["metadatas"]})
        return marker_of(answer["metadatas"][0]) if answer["ids"] else None

    async def reset(self, marker: IndexMarker) -> None:
        old = await self._ours()
        number = 1 + max((_number(item["name"], self._prefix) for item in old), default=0)
        # Names sort by number, so that every process finds the newest last.
        name = f"{self._prefix}{number:08d}-{uuid.uuid4().hex[:8]}"
        created = await self._request(
            "POST",
            _COLLECTIONS,
            {
                "name": name,
                "metadata": {_MADE_AS: name},
                "configuration": configuration(self._sync_threshold),
            },
        )
        self._collection = created["id"]
        await self._write([], marker)
        for item in old:
            try:
                await self._request("DELETE", f"{_COLLECTIONS}/{item['name']}")
            except IndexBroken:  # a damaged collection cannot always be deleted; then it is left behind
                continue

    async def apply(self, changes: Sequence[Change], marker: IndexMarker) -> None:
        known = await self._marker()
        if known is None:
            raise IndexBroken(f"{self.name}: the collection has lost its marker")
        if known.through < marker.through:
            await self._write([change for change in changes if change.at > known.through], marker)

    async def _write(self, changes: Sequence[Change], marker: IndexMarker) -> None:
        gone = deleted(changes)
        if gone:
            await self._ask("delete", {"ids": gone})
        items = upserted(changes, marker)
        await self._ask(
            "upsert",
            {
                "ids": items.ids,
                "embeddings": list(map(_floats, items.vectors)),
                "metadatas": items.metadatas,
            },
        )

    async def complete(self) -> None:
        return

    def erased(self) -> tuple[list[str], list[Unreached]]:
        """The old collection is deleted; what is left of it in the server's files, only its host can tell."""
        return [], [
            Unreached(
                "the Chroma server's files",
                "its collection was deleted and rebuilt; on its host, stop it and run "
                "`chroma vacuum --path FOLDER`",
            )
        ]

    async def query(self, user: bytes, vector: bytes, k: int) -> list[Near]:
        answer = await self._ask(
            "query",
            {
                "query_embeddings": [_floats(vector)],
                "n_results": k,
                "where": {"user": user.hex()},
                "include": ["distances"],
            },
        )
        return near(answer)

    async def vectors(self, sequences: Sequence[int]) -> dict[int, bytes]:
        """Chroma reads them from its vector files, so a vector missing there is missing here, or an error."""
        ids = [str(sequence) for sequence in sequences]
        answer = await self._ask("get", {"ids": ids, "include": ["embeddings"]})
        pairs = zip(answer["ids"], answer["embeddings"], strict=True)
        return {int(id_): array("f", vector).tobytes() for id_, vector in pairs if vector is not None}

    async def count(self) -> int:
        """Without the marker."""
        return int(await self._request("GET", f"{_COLLECTIONS}/{self._known()}/count")) - 1

    async def close(self) -> None:
        await self._http.aclose()

    async def _ours(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        offset = 0
        while page := await self._request("GET", f"{_COLLECTIONS}?limit={_PAGE}&offset={offset}"):
            found += [item for item in page if self._made(item)]
            offset += len(page)
        return sorted(found, key=lambda item: str(item["name"]))

    def _made(self, item: dict[str, Any]) -> bool:
        name = str(item["name"])
        return name.startswith(self._prefix) and (item.get("metadata") or {}).get(_MADE_AS) == name

    def _known(self) -> str:
        if self._collection is None:
            raise IndexBroken(f"{self.name}: not open")
        return self._collection

    async def _ask(self, call: str, body: dict[str, Any]) -> Any:
        return await self._request("POST", f"{_COLLECTIONS}/{self._known()}/{call}", body)

    async def _request(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        content = None if body is None else msgspec.json.encode(body)
        try:
            response = await self._http.request(
                method, path, content=content, headers={"content-type": "application/json"}
            )
        except httpx.HTTPError as error:
            raise IndexBroken(f"{self.name}: {type(error).__name__}: {error}") from error
        if response.status_code >= 300:
            raise IndexBroken(f"{self.name}: {response.status_code} {response.text[:300]}")
        try:
            return msgspec.json.decode(response.content) if response.content else None
        except msgspec.DecodeError as error:
            raise IndexBroken(f"{self.name}: the answer is not JSON: {error}") from error


def _number(name: str, prefix: str) -> int:
    digits = name.removeprefix(prefix).split("-")[0]
    return int(digits) if digits.isdigit() else 0


def _floats(vector: bytes) -> list[float]:
    return array("f", vector).tolist()
