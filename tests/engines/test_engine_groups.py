"""Several servers that are one engine: what the endpoint says of them, and that all of them end."""

from __future__ import annotations

import pytest

from recollect.verify import engines
from recollect.verify.engines import EngineOptions
from recollect.verify.engines.redis_cluster import SLOTS
from tests.engines.conftest import Create


def test_a_cluster_has_its_nodes_in_the_endpoint(create: Create) -> None:
    engine = create("redis-cluster", "aof-always")
    endpoint = engine.start()
    assert len(endpoint.nodes) == 6
    assert all(node.rpartition("@")[2].removesuffix("/0") in endpoint.url for node in endpoint.nodes)
    assert endpoint.password not in repr(endpoint)
    assert engine.settings()["appendfsync"] == "always"
    primaries = engine.primaries()
    assert sum(len(engine.slots_of(node)) for node in primaries) == SLOTS
    assert [len(engine.replicas_of(node)) for node in primaries] == [1, 1, 1]
    primaries[0].kill()
    assert engine.alive()
    engine.kill()
    assert not engine.alive()


@pytest.mark.parametrize("spec", ["redis-cluster", "redis-sentinel"])
def test_what_a_group_cannot_be_given(spec: str) -> None:
    with pytest.raises(engines.EngineError, match="leave data and port out"):
        engines.create(spec, options=EngineOptions(port=7000))
    with pytest.raises(engines.EngineError, match="needs Redis 7 or newer"):
        engines.create(f"{spec}@6.2")
