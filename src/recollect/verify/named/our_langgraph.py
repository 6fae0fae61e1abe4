"""Our saver for LangGraph, one for all threads of a process."""

from functools import cache

from recollect.adapters.langgraph import RecollectSaver
from recollect.verify.engines.endpoint import Endpoint
from recollect.verify.named.our_store import address_of


class ThreadSaver(RecollectSaver):
    """A thread is read, changed and put by one run at a time: LangGraph's interface has no compare-and-set."""

    traits = ("single_writer",)
    loss_errors = ("Unreadable",)


@cache
def _saver(address: str, witness: str | None) -> ThreadSaver:
    return ThreadSaver(address, witness=witness)


def factory(endpoint: Endpoint) -> ThreadSaver:
    return _saver(address_of(endpoint), endpoint.settings.get("witness"))
