"""Looks at a target once, before the cells are chosen: what it can do, or why it cannot be used."""

import tempfile
from pathlib import Path

from recollect.verify import engines
from recollect.verify.engines import Attached, Engine
from recollect.verify.host import folder
from recollect.verify.matrix.selection import VerifyRequest, engine_of
from recollect.verify.target import form_trial
from recollect.verify.target.registry import BUILT_IN, imports_of, modules_of
from recollect.verify.target.shape import BadTarget
from recollect.verify.target.target import resolve
from recollect.verify.target.workers import TargetBroken, Workers

_OF_STORES = frozenset(
    {"forget", "batches", "turn", "expect", "last", "after", "retract", "replace", "append_many", "fork"}
    | {"annotate", "find"}
)
_OF_RECALL = frozenset({"forget", "batches", "turn", "search"})
OUR_ABILITIES = {target: _OF_RECALL if target == "chroma" else _OF_STORES for target in BUILT_IN}


def abilities_of(request: VerifyRequest, target: str) -> frozenset[str]:
    """What the target can do; raises `TargetBroken` or `EngineError` with one sentence.

    It runs the target's code and starts a fork server, so the command line has a cell process do it (`CellPool.look`).
    """
    if request.previous is not None and request.previous_python is None:
        try:
            resolve(request.previous)
        except BadTarget as wrong:
            raise TargetBroken(f"--previous: {wrong}") from None
    if target in BUILT_IN and request.url is None:
        return OUR_ABILITIES[target]
    config = None if request.engine_config is None else Path(request.engine_config)
    with tempfile.TemporaryDirectory(prefix="probe-", dir=folder.current()) as scratch:
        engine: Attached | Engine
        if request.url is not None:
            attached = engines.attach(request.url.reveal())
            engine, end = attached, attached.stop
        else:
            created = engines.create(engine_of(request, target), provider=request.provider, config=config)
            engine, end = created, created.close
        imports = (*modules_of(target), *imports_of(target, engine_of(request, target)))
        workers = Workers(Path(scratch) / "target.log", imports)
        try:
            endpoint = engine.start()
            if target in BUILT_IN:  # only the address was in doubt
                return OUR_ABILITIES[target]
            worker, ready = workers.start(target, endpoint, prepare=True)
            workers.close(worker)
            return frozenset(form_trial.settled(workers, target, endpoint, ready).abilities)
        finally:
            workers.close_all()
            end()  # chosen above: `isinstance` asks a protocol's members, and one that never started has no version
