"""What a Chroma collection holds, embedded or on a server: one item per row, and the marker as one more."""

from array import array
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from recollect.recall.index import IndexMarker, Near
from recollect.recall.rows import Change

MARKER = "marker"
"""The id of the item that carries the index's marker."""


class Items(NamedTuple):
    """What one upsert takes; vectors are float32."""

    ids: list[str]
    vectors: list[bytes]
    metadatas: list[dict[str, Any]]


NEIGHBOURS_MAX, CANDIDATES = 48, 200
"""How many neighbours each vector has in the graph, and how many are considered when it is added. With Chroma's own 16
and 100, nearly one vector in a hundred cannot be found even by a query equal to it; with these hardly any, and nothing
takes longer."""


def configuration(sync_threshold: int) -> dict[str, Any]:
    """The configuration of a new collection."""
    graph = {"max_neighbors": NEIGHBOURS_MAX, "ef_construction": CANDIDATES}
    return {"hnsw": {"space": "cosine", "sync_threshold": sync_threshold, **graph}}


def deleted(changes: Sequence[Change]) -> list[str]:
    return [str(change.sequence) for change in changes if change.vector is None]


def upserted(changes: Sequence[Change], marker: IndexMarker) -> Items:
    """The marker, and the rows that were added. A row added and forgotten within these changes has no vector here, so
    it does not matter whether upserts or deletions go first."""
    state = {
        "user": "",
        "rows": marker.rows,
        "space": marker.space,
        "dimension": marker.dimension,
        "through": marker.through,
    }
    unit = array("f", [1.0, *[0.0] * (marker.dimension - 1)])
    items = Items([MARKER], [unit.tobytes()], [state])
    for change in changes:
        if change.vector is not None and change.user is not None:
            items.ids.append(str(change.sequence))
            items.vectors.append(change.vector)
            items.metadatas.append({"user": change.user.hex()})
    return items


def marker_of(metadata: Mapping[str, Any]) -> IndexMarker:
    return IndexMarker(
        str(metadata["rows"]),
        int(metadata["space"]),
        int(metadata["dimension"]),
        int(metadata["through"]),
    )


def near(answer: Mapping[str, Any]) -> list[Near]:
    """The answer to a query for one vector."""
    pairs = zip(answer["ids"][0], answer["distances"][0], strict=True)
    return [Near(int(id_), 1.0 - float(distance)) for id_, distance in pairs]
