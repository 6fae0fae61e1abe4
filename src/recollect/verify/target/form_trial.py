"""Which form of messages a store takes that does not say so: tried before the run, on sessions that nobody else uses.

The first form counts that comes back as it was written; if none does, the first that is accepted. Text is only tried if
the others raise: a store may well turn anything into text, and what it is given by its application is not known. Each
form has a process of its own and, on SQLite, a copy of the folder: neither a transaction that an error left open nor a
file that it left half written is in the way of the next form, or of the run.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from recollect.verify.engines.endpoint import Endpoint
from recollect.verify.host import folder
from recollect.verify.host.busy import patient_s
from recollect.verify.target import pipe
from recollect.verify.target.interface_choice import FORMS, TEXT, Form
from recollect.verify.target.marked_text import mark
from recollect.verify.target.workers import TargetBroken, Worker, WorkerDied, Workers

RAISED, ACCEPTED, KEPT = range(3)
NUMBER = 999_999_999_999
"""Of the message that is written: no run has as many."""
ANSWER_S = 5.0


def settled(workers: Workers, spec: str, endpoint: Endpoint, ready: pipe.Ready) -> pipe.Ready:
    """What the target says of itself once its form is known, which all further workers then use."""
    if not ready.is_open:
        return ready
    found: dict[Form, int] = {}
    for form in FORMS:
        if KEPT in found.values() or (form == TEXT and ACCEPTED in found.values()):
            break
        with _own_files(endpoint) as own:
            found[form] = _became_of(workers, spec, own, form)
    workers.form = max(found, key=lambda form: found[form])  # of equals, the first
    with suppress(TargetBroken):
        worker, ready = workers.start(spec, endpoint)
        workers.close(worker)
    return ready


@contextmanager
def _own_files(endpoint: Endpoint) -> Iterator[Endpoint]:
    """The same memory in files that nobody else uses, if it is files."""
    if endpoint.engine != "sqlite" or endpoint.path is None:
        yield endpoint
        return
    with tempfile.TemporaryDirectory(prefix="trial-", dir=folder.current()) as scratch:
        shutil.copytree(endpoint.path.parent, scratch, dirs_exist_ok=True)
        path = Path(scratch) / endpoint.path.name
        yield replace(endpoint, path=path, url=f"sqlite:///{path}")


def _became_of(workers: Workers, spec: str, endpoint: Endpoint, form: Form) -> int:
    """What became of a message in this form."""
    workers.form = form
    session = f"recollect-takes-{form}"
    try:
        worker, _ = workers.start(spec, endpoint)
    except TargetBroken:
        return RAISED
    try:
        said = pipe.Said(NUMBER, mark(NUMBER, "is anybody there?"))
        answers = list(_answers(worker, (pipe.AppendMessages(session, [said]), pipe.Read(session))))
    except WorkerDied:
        return RAISED
    finally:
        workers.kill(worker)
    match answers:
        case [pipe.Acked(), pipe.Elements(numbers=[number])] if number == NUMBER:
            return KEPT
        case [pipe.Acked(), *_]:
            return ACCEPTED
        case []:
            return KEPT  # it hangs, and not because of the form: the run will tell
    return RAISED


def _answers(worker: Worker, requests: Iterable[pipe.Request]) -> Iterable[pipe.Reply]:
    for request in requests:
        worker.send(request)
        if not worker.readable(patient_s(ANSWER_S)):
            return
        yield worker.receive()
