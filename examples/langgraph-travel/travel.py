"""Books a trip in three steps, and goes on where it was killed: `python travel.py URL THREAD [--die-in STEP]`."""

import argparse
import operator
import os
import signal
from collections.abc import Callable
from typing import Annotated

from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

from recollect.adapters.langgraph import RecollectSaver

PLAN = ("flight", "hotel", "car")


class Trip(TypedDict):
    booked: Annotated[list[str], operator.add]


def step(number: int, what: str, dies: bool) -> Callable[[Trip], dict[str, list[str]]]:
    def book(trip: Trip) -> dict[str, list[str]]:
        print(f"{number}. {what}: ", end="", flush=True)
        if dies:
            print("…", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        print("booked", flush=True)
        return {"booked": [what]}

    return book


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", help="where checkpoints are kept, such as postgresql://localhost/memory")
    parser.add_argument("thread", help="the trip's name")
    parser.add_argument("--die-in", choices=PLAN, help="kill this process in the middle of that step")
    given = parser.parse_args()
    builder = StateGraph(Trip)
    for number, what in enumerate(PLAN, 1):
        builder.add_node(what, step(number, what, what == given.die_in))
        builder.add_edge(PLAN[number - 2] if number > 1 else START, what)
    builder.add_edge(PLAN[-1], END)
    with RecollectSaver(given.url, durability="fsynced") as saver:
        graph = builder.compile(checkpointer=saver)
        config = {"configurable": {"thread_id": given.thread}}
        booked = graph.get_state(config).values.get("booked", [])
        if booked:
            print(f"going on after {', '.join(booked)}", flush=True)
        # With None instead of a state, a graph goes on from its last checkpoint.
        trip = graph.invoke(None if booked else {"booked": []}, config, durability="sync")
        print(f"the trip: {', '.join(trip['booked'])}")


if __name__ == "__main__":
    main()
