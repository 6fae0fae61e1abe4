"""A scenario: the frozen description of one run, enough to run it again.

The seed fixes which sessions, sizes and texts each client uses, in which order, and when the fault strikes. On real
engines it does not fix how the clients interleave, so a replay reports how often it saw the same anomaly.
"""

import random
from pathlib import Path
from typing import Annotated

import msgspec

from recollect import private
from recollect.regular_files import read_file
from recollect.secret import SecretUrl, from_json, to_artifact
from recollect.verify.target.interface_choice import Form
from recollect.verify.target.registry import imports_of, modules_of

FILE = "scenario.json"
"""Its file in the folder of a run."""

KINDS: dict[str, str] = {
    "valkey": "redis",
    "valkey-cluster": "redis-cluster",
    "valkey-sentinel": "redis-sentinel",
}
"""Products that are the same engine under another name."""


RECALL = ("recollect.verify.recall_targets", "recollect.recall.rows_sqlite", "recollect.recall.chroma_server")
SLOW_IMPORTS = {"server": RECALL, "embedded": (*RECALL, "chromadb")}
"""What targets on Chroma import, by its policy: it takes up to seconds, and starts no threads."""


Text = Annotated[str, msgspec.Meta(max_length=1_000, pattern=r"^[^\x00-\x1f\x7f]*$")]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=86_400)]
"""Anything else is refused on loading: a scenario may come from anywhere."""


SESSIONS = 3
"""How many a run has, unless it says otherwise."""


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    target: Text
    engine: Text
    """With its version, where one was asked for: ``redis@7``."""
    policy: Text
    fault: Text
    workload: Text = "append"
    variant: Text = ""
    """Which variant of the fault, such as the moment or the line of a kill; empty is the default."""
    provider: Text | None = None
    url: SecretUrl | None = None
    """An engine that the user prepared, instead of one of ours. Saved without its credentials."""
    engine_config: Text | None = None
    previous: Text | None = None
    """The target of the other release, for rolling deploys."""
    previous_python: Text | None = None
    retain_s: Annotated[float, msgspec.Meta(gt=0)] | None = None
    form: Form = ""
    """In which form the target was seen to take messages; empty if it says so itself."""
    path: tuple[Text, ...] = ()
    """Folders to import the target from, ahead of Python's usual ones."""
    seed: int = 0
    writers: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 3
    readers: Annotated[int, msgspec.Meta(ge=0, le=1_000)] = 1
    sessions: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = SESSIONS
    session_messages: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] | None = None
    """Messages that every session has when the fault strikes, at least; None: as many as there is time for."""
    apart: bool = False
    """Every writer has sessions of its own, so that bugs that need two writers in one session stay out of the way."""
    ops_max: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """The most operations per client; None: only the time limits them."""
    turn_max: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """The most messages per turn; None: the workload decides."""
    before_s: Seconds = 0.45
    """Time before the fault strikes, and after it has healed."""
    after_s: Seconds = 0.2
    data: Text | None = None
    """Older data to start on, and the file that lists what it should hold."""
    expect: Text | None = None
    how: Text = ""
    """For an interleaving: tasks, threads or processes."""
    program: Text = ""
    schedule: Text = ""
    """For an interleaving: its program and its schedule, as `recollect explore` takes them."""

    @property
    def name(self) -> str:
        parts = (self.target, self.engine, self.policy, self.fault, self.variant, self.workload)
        return ".".join(part.replace("/", "_").replace(":", "_") for part in parts if part)

    @property
    def title(self) -> str:
        """The title that people read: where it ran, and what happened."""
        return f"{self.target} {self.place}"

    @property
    def place(self) -> str:
        """Its place among the cells of one target; with the engine if a version was asked for: others may be too."""
        engine = self.engine if "@" in self.engine else ""
        parts = (engine, self.policy, self.fault, self.variant, self.workload)
        return " ".join(part for part in parts if part)

    @property
    def engine_name(self) -> str:
        """As it was asked for, and as reports call it: Valkey is not Redis."""
        return self.engine.partition("@")[0]

    @property
    def engine_kind(self) -> str:
        """The engine whose policies and faults it has: Valkey's are those of Redis."""
        return KINDS.get(self.engine_name, self.engine_name)

    @property
    def modules(self) -> tuple[str, ...]:
        """What is imported once, in the fork server, instead of in every worker; the worker reports a failure."""
        targets = (*modules_of(self.target), *modules_of(self.previous or ""))
        if self.engine_kind != "chroma":
            return (*targets, *imports_of(self.target, self.engine))
        if targets:  # with a Chroma server, any target may need Chroma's client as well
            return (*targets, *SLOW_IMPORTS["embedded"])
        return SLOW_IMPORTS.get(self.policy, ())

    @property
    def filled(self) -> int:
        """Messages that sessions get before anything else; none in a run that was made smaller."""
        return self.session_messages or 0 if self.ops_max is None else 0

    def rng(self, purpose: str) -> random.Random:
        """A generator for one purpose, so that changing one does not move the others."""
        return random.Random(f"{self.seed}/{self.name}/{purpose}")


def save(scenario: Scenario, folder: Path) -> None:
    text = msgspec.json.format(msgspec.json.encode(scenario, enc_hook=to_artifact))
    private.write_artifact(folder / FILE, text)


def load(folder: Path) -> Scenario:
    """Raises `msgspec.MsgspecError` if it is not what `save` wrote."""
    try:
        return msgspec.json.decode(read_file(folder / FILE), type=Scenario, dec_hook=from_json)
    except (UnicodeDecodeError, RecursionError) as error:
        raise msgspec.ValidationError(f"{folder / FILE} is damaged: {error}") from None
