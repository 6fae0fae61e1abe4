"""`RecollectSaver`: LangGraph's checkpoints on SQLite, PostgreSQL or Redis.

    from recollect.adapters.langgraph import RecollectSaver

    with RecollectSaver("postgresql://localhost/memory") as saver:
        graph = builder.compile(checkpointer=saver)
        graph.invoke(state, {"configurable": {"thread_id": "user-42"}})

One saver serves `invoke` and `ainvoke`, any number of threads and event loops: its connections live on their own loop.
A change whose outcome is unknown is repeated, which is safe because repeating it changes nothing, and a cancelled call
is finished first (`carrying`).
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Unpack, cast

import msgspec
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    PendingWrite,
    get_checkpoint_id,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from recollect.adapters.carrying import CALL_AGAIN, retried
from recollect.adapters.langgraph.own_loop import OwnLoop
from recollect.adapters.langgraph.saver_witness import SaverWitness
from recollect.adapters.langgraph.serializing import MessageSerializer
from recollect.adapters.langgraph.shelf import (
    EMPTY,
    CheckpointListing,
    CheckpointRow,
    FoundCheckpoint,
    NearShelf,
    PendingRow,
    Shelf,
    ThreadPlace,
    Unchanged,
    has_half_character,
    key,
    packed,
    reference,
    reference_prefix,
    text_of,
    unpacked,
)
from recollect.adapters.langgraph.shelves import shelf_class
from recollect.errors import OutcomeUnknown, Refused
from recollect.store import OpenOptions, Options

PAGE = 50
"""How many checkpoints a listing reads at once."""
ANCESTORS_AT_ONCE = 100
COUNTERS = "counters_since_delta_snapshot"
"""The metadata key that names the delta channels of a checkpoint."""

PUT_AGAIN = "put the same again: it has an id, and is stored once"

list_ = list
"""The built-in: inside the class, `list` is LangGraph's method."""


class RecollectSaver(BaseCheckpointSaver[str]):
    """See the module. Opened on creation; `close` it, or use it in a ``with`` or ``async with``.

    The options are those of `open_store` that make sense here: `durability`, `replicas`, `witness` (a file of the
    saver's own), `timeout_s`, `pool_size` and `file_mode`. `serde` is LangGraph's serializer, as in its own savers.
    """

    def __init__(
        self, url: str, *, serde: SerializerProtocol | None = None, **options: Unpack[OpenOptions]
    ) -> None:
        super().__init__(serde=serde or MessageSerializer())
        kind = shelf_class(url)
        self._loop = OwnLoop("saver")
        try:
            self._shelf, self._witness = self._loop.wait(_opened(kind, url, _checked(options)))
        except BaseException:
            self._loop.end()
            raise
        self._near_shelf = self._shelf if isinstance(self._shelf, NearShelf) else None

    # ---- reading

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint that the config names, or the latest of its thread."""
        if (near := self._near()) is not None:
            given = get_checkpoint_id(config)
            done, found = near.get_here(_place(config), key(given) if given else None)
            if done:
                return None if found is None else self._tuple(found)
        return self._loop.wait(self._get(config))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """`get_tuple`."""
        return await self._loop.reach(self._get(config))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Checkpoints, latest first; without a config, those of all threads."""
        listing: CheckpointListing | None = _listing(config, before, filter, limit)
        while listing is not None and (limit is None or limit > 0):
            found, listing = self._loop.wait(self._page(listing))
            for one in found:
                if _fits(one, filter) and (limit is None or limit > 0):
                    limit = None if limit is None else limit - 1
                    yield one

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """`list`."""
        listing: CheckpointListing | None = _listing(config, before, filter, limit)
        while listing is not None and (limit is None or limit > 0):
            found, listing = await self._loop.reach(self._page(listing))
            for one in found:
                if _fits(one, filter) and (limit is None or limit > 0):
                    limit = None if limit is None else limit - 1
                    yield one

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """What was written to these channels since their last stored values, read in large steps."""
        return self._loop.wait(self._deltas(config, channels))

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """`get_delta_channel_history`."""
        return await self._loop.reach(self._deltas(config, channels))

    # ---- writing

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Stores a checkpoint and the channel values that are new in it, in one step."""
        row, values, unchanged = self._row(config, checkpoint, metadata, new_versions)
        if row.base == row.id:
            row = self._loop.wait(_put_again(self._shelf, row))
        self._change(
            lambda near: near.put_here(row, values, unchanged),
            lambda: self._shelf.put(row, values, unchanged),
        )
        return _config(row.place, row.id)

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """`put`."""
        row, values, unchanged = self._row(config, checkpoint, metadata, new_versions)
        if row.base == row.id:
            row = await self._loop.reach(_put_again(self._shelf, row))
        await self._achange(
            lambda near: near.put_here(row, values, unchanged),
            lambda: self._shelf.put(row, values, unchanged),
        )
        return _config(row.place, row.id)

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Stores what a task wrote: if the task is run again, what it wrote first stays."""
        if pending := self._pending(writes, task_id, task_path):
            given = _place(config), key(config["configurable"]["checkpoint_id"]), pending
            self._change(lambda near: near.put_writes_here(*given), lambda: self._shelf.put_writes(*given))

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """`put_writes`."""
        if pending := self._pending(writes, task_id, task_path):
            given = _place(config), key(config["configurable"]["checkpoint_id"]), pending
            await self._achange(
                lambda near: near.put_writes_here(*given), lambda: self._shelf.put_writes(*given)
            )

    def delete_thread(self, thread_id: str) -> None:
        """Removes everything of a thread."""
        self._loop.wait(self._delete_thread(thread_id))

    async def adelete_thread(self, thread_id: str) -> None:
        """`delete_thread`."""
        await self._loop.reach(self._delete_thread(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Removes the checkpoints that these runs made, and their pending writes."""
        self._loop.wait(self._delete_for_runs(run_ids))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """`delete_for_runs`."""
        await self._loop.reach(self._delete_for_runs(run_ids))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copies everything of a thread to another, in one step."""
        self._loop.wait(self._copy_thread(source_thread_id, target_thread_id))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """`copy_thread`."""
        await self._loop.reach(self._copy_thread(source_thread_id, target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Keeps the latest checkpoint of each namespace, and the earlier ones that its delta channels are built from;
        with the strategy "delete", keeps nothing."""
        self._loop.wait(self._prune(thread_ids, strategy))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """`prune`."""
        await self._loop.reach(self._prune(thread_ids, strategy))

    def get_next_version(self, current: str | None, channel: None) -> str:
        """A growing number with a random part, so that two branches of a thread never share each other's values."""
        number = 0 if current is None else int(str(current).split(".")[0])
        return f"{number + 1:032}.{random.random():016}"

    # ---- life

    def close(self) -> None:
        """Closes the connections. What was acknowledged is not affected."""
        self._loop.close(self._closing)

    async def aclose(self) -> None:
        """`close`."""
        await asyncio.to_thread(self.close)

    def __enter__(self) -> "RecollectSaver":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> "RecollectSaver":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _near(self) -> NearShelf | None:
        """The shelf for calls on this thread; None where it has to be the saver's own."""
        return self._near_shelf if self._loop.usable else None

    def _change(self, here: Callable[[NearShelf], bool], there: Callable[[], Awaitable[None]]) -> None:
        """A change on this thread if it can be made here, else on the saver's loop."""
        done, unknown = self._changed_here(self._near(), here)
        if not done:
            self._loop.wait(self._carried(there, PUT_AGAIN, unknown))

    async def _achange(self, here: Callable[[NearShelf], bool], there: Callable[[], Awaitable[None]]) -> None:
        """The same for a caller on an event loop, which may be held up only for moments."""
        near = self._near()
        done, unknown = self._changed_here(near if near is not None and near.is_quick else None, here)
        if done:
            await asyncio.sleep(0)  # whoever puts one after another lets others run
        else:
            await self._loop.reach(self._carried(there, PUT_AGAIN, unknown))

    def _changed_here(
        self, near: NearShelf | None, here: Callable[[NearShelf], bool]
    ) -> tuple[bool, OutcomeUnknown | None]:
        """Whether it was made; if nobody knows, how that was told."""
        try:
            done = near is not None and here(near)
        except OutcomeUnknown as error:
            return False, error
        if done:
            self._noted()
        return done, None

    def _noted(self) -> None:
        if self._witness is not None:
            self._witness.note()

    # ---- on the saver's loop

    async def _closing(self) -> None:
        try:
            if self._witness is not None:
                await self._witness.close()
        finally:
            await self._shelf.close()

    async def _get(self, config: RunnableConfig) -> CheckpointTuple | None:
        given = get_checkpoint_id(config)
        found = await self._shelf.get(_place(config), key(given) if given else None)
        return None if found is None else self._tuple(found)

    async def _page(
        self, listing: CheckpointListing
    ) -> "tuple[list_[CheckpointTuple], CheckpointListing | None]":
        found = await self._shelf.page(listing)
        following = None
        if len(found) == listing.limit:
            last = found[-1].row
            end = (last.id, last.place.thread, last.place.namespace)
            following = msgspec.structs.replace(listing, after=end)
        return [self._tuple(one) for one in found], following

    async def _deltas(
        self, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        place = _place(config)
        given = get_checkpoint_id(config)
        target = await self._shelf.get(place, key(given) if given else None) if channels else None
        waiting = set(channels)
        writes: dict[str, list_[PendingWrite]] = {channel: [] for channel in channels}
        seeds: dict[str, Any] = {}
        async for found in self._line_of(place, target.row.parent if target else None, waiting):
            for write in sorted(found.writes, key=lambda one: one.order, reverse=True):
                if (channel := text_of(write.channel)) in waiting:
                    writes[channel].append(self._write(write))
            for channel, value in self._values(found, waiting).items():
                seeds[channel] = value
                waiting.discard(channel)
        made: dict[str, DeltaChannelHistory] = {}
        for channel in channels:
            made[channel] = {"writes": writes[channel][::-1]}
            if channel in seeds:
                made[channel]["seed"] = seeds[channel]
        return made

    async def _line_of(
        self, place: ThreadPlace, first: bytes | None, waiting: "set[str]"
    ) -> AsyncIterator[FoundCheckpoint]:
        """A checkpoint, its parent and so on, until every channel has what it needs."""
        while first is not None and waiting:
            prefixes = [reference_prefix(channel) for channel in waiting]
            some = await self._shelf.ancestors(place, first, prefixes, ANCESTORS_AT_ONCE)
            for found in some:
                if not waiting:
                    return
                yield found
            first = some[-1].row.parent if len(some) == ANCESTORS_AT_ONCE else None

    async def _carried(
        self,
        change: Callable[[], Awaitable[None]],
        advice: str = CALL_AGAIN,
        unknown: OutcomeUnknown | None = None,
    ) -> None:
        """`unknown`: it was tried already, with this outcome."""
        try:
            if unknown is None:
                await change()
        except OutcomeUnknown as error:
            unknown = error
        if unknown is not None:
            # Without a turn id: repeating it changes nothing.
            await retried(lambda _: change(), "", unknown, advice)
        self._noted()

    async def _delete_thread(self, thread: str) -> None:
        await self._carried(lambda: self._shelf.delete_thread(_thread(thread)))

    async def _copy_thread(self, source: str, target: str) -> None:
        if _thread(source) != _thread(target):
            await self._carried(lambda: self._shelf.copy_thread(_thread(source), _thread(target)))

    async def _delete_for_runs(self, runs: Sequence[str]) -> None:
        ids: dict[ThreadPlace, list_[bytes]] = {}
        for place, checkpoint in await self._shelf.of_runs([key(str(run)) for run in runs]):
            ids.setdefault(place, []).append(checkpoint)
        for place, checkpoints in ids.items():
            await self._drop(place, checkpoints)

    async def _drop(self, place: ThreadPlace, checkpoints: "list_[bytes]") -> None:
        await self._carried(lambda: self._shelf.drop(place, checkpoints))

    async def _prune(self, threads: Sequence[str], strategy: str) -> None:
        if strategy not in ("keep_latest", "delete", "delete_all"):
            raise Refused(f"strategy: 'keep_latest' or 'delete', not {strategy!r}")
        for thread in threads:
            if strategy != "keep_latest":
                await self._delete_thread(thread)
                continue
            for namespace in await self._shelf.namespaces(_thread(thread)):
                await self._keep_latest(ThreadPlace(_thread(thread), namespace))

    async def _keep_latest(self, place: ThreadPlace) -> None:
        ids = await self._shelf.ids(place)  # read first, so that checkpoints put meanwhile are not removed
        latest = await self._shelf.get(place, None)
        if latest is None:
            return
        waiting = set(self._metadata(latest).get(COUNTERS) or ())
        waiting.difference_update(self._values(latest, waiting))
        kept = {latest.row.id}
        async for found in self._line_of(place, latest.row.parent, waiting):
            kept.add(found.row.id)
            waiting.difference_update(self._values(found, waiting))
        gone = [one for one in ids if one not in kept]
        if gone:
            await self._drop(place, gone)

    # ---- between LangGraph's values and the shelf's

    def _row(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> tuple[CheckpointRow, dict[bytes, bytes], Unchanged]:
        rest = dict(checkpoint)
        channel_values = cast(dict[str, Any], rest.pop("channel_values"))
        given = config["configurable"].get("checkpoint_id")
        parent = key(given) if given else None
        whole_metadata = get_checkpoint_metadata(config, metadata)
        run = whole_metadata.get("run_id")
        versions = checkpoint["channel_versions"]
        channels = {reference(channel, version): channel for channel, version in versions.items()}
        row = CheckpointRow(
            _place(config),
            key(checkpoint["id"]),
            parent,
            key(str(run)) if run else None,
            list_(channels),
            _dumped(self.serde, rest, "names of channels and nodes"),
            _dumped(self.serde, whole_metadata, "metadata"),
            base=parent,
        )
        values = {
            ref: self._dumped_channel(channel_values, channel) or EMPTY
            for ref, channel in channels.items()
            if channel in new_versions
        }

        def unchanged(ref: bytes) -> bytes | None:
            channel = channels[ref]
            return self._dumped_channel(channel_values, channel)

        return row, values, unchanged

    def _pending(self, writes: Sequence[tuple[str, Any]], task: str, path: str) -> "list_[PendingRow]":
        return [
            PendingRow(
                key(task),
                WRITES_IDX_MAP.get(channel, number),
                key(channel),
                key(path),
                _dumped(self.serde, value, f"a write to channel {channel!r}"),
            )
            for number, (channel, value) in enumerate(writes)
        ]

    def _dumped_channel(self, channel_values: Mapping[str, Any], channel: str) -> bytes | None:
        if channel not in channel_values:
            return None
        return _dumped(self.serde, channel_values[channel], f"channel {channel!r}")

    def _tuple(self, found: FoundCheckpoint) -> CheckpointTuple:
        row = found.row
        rest = self.serde.loads_typed(unpacked(row.checkpoint, f"checkpoint {text_of(row.id)}"))
        values = self._values(found, rest["channel_versions"], rest["channel_versions"])
        return CheckpointTuple(
            config=_config(row.place, row.id),
            checkpoint=cast(Checkpoint, {**rest, "channel_values": values}),
            metadata=self._metadata(found),
            parent_config=_config(row.place, row.parent) if row.parent else None,
            pending_writes=[self._write(one) for one in sorted(found.writes, key=lambda one: one.order)],
        )

    def _metadata(self, found: FoundCheckpoint) -> Any:
        what = f"the metadata of checkpoint {text_of(found.row.id)}"
        return self.serde.loads_typed(unpacked(found.row.metadata, what))

    def _values(
        self,
        found: FoundCheckpoint,
        channels: "set[str] | Mapping[str, Any]",
        versions: ChannelVersions | None = None,
    ) -> dict[str, Any]:
        """The values of those channels that have a stored value in this checkpoint."""
        if not channels:
            return {}
        if versions is None:
            rest = self.serde.loads_typed(
                unpacked(found.row.checkpoint, f"checkpoint {text_of(found.row.id)}")
            )
            versions = cast(ChannelVersions, rest["channel_versions"])
        values: dict[str, Any] = {}
        for channel in channels:
            raw = found.values.get(reference(channel, versions[channel])) if channel in versions else None
            if raw is not None and raw != EMPTY:
                what = f"channel {channel!r} of checkpoint {text_of(found.row.id)}"
                values[channel] = self.serde.loads_typed(unpacked(raw, what))
        return values

    def _write(self, write: PendingRow) -> PendingWrite:
        channel = text_of(write.channel)
        value = self.serde.loads_typed(unpacked(write.value, f"a write to channel {channel!r}"))
        return text_of(write.task), channel, value


async def _put_again(shelf: Shelf, row: CheckpointRow) -> CheckpointRow:
    """A checkpoint that is put with its own config, to change its metadata, keeps its parent."""
    found = await shelf.get(row.place, row.id)
    return msgspec.structs.replace(row, parent=None if found is None else found.row.parent)


def _dumped(serde: SerializerProtocol, value: Any, what: str) -> bytes:
    """A value as bytes. LangGraph's serializer writes a question mark for half of a character; we refuse that."""
    kind, data = serde.dumps_typed(value)
    encrypted = "+" in kind  # as `EncryptedSerializer` names it: no question mark is seen there
    pickled = kind.startswith("pickle")  # which has every text as it is
    if not pickled and (encrypted or b"?" in data) and has_half_character(value):
        raise Refused(
            f"{what}: a text with half of a character (a lone surrogate) cannot be kept; "
            "cut texts between characters"
        )
    return packed(kind, data)


async def _opened(kind: Any, url: str, options: Options) -> tuple[Shelf, SaverWitness | None]:
    shelf: Shelf = await kind.open(url, options)
    try:
        return shelf, await SaverWitness.check(shelf, options)
    except BaseException:
        await shelf.close()
        raise


def _checked(options: OpenOptions) -> Options:
    for name in ("ttl", "read_url"):
        if options.get(name) is not None:
            raise Refused(f"{name}: not for checkpoints; leave it out")
    return Options.checked(options)


def _thread(thread_id: object) -> bytes:
    """Many applications number their threads."""
    return key(str(thread_id))


def _place(config: RunnableConfig) -> ThreadPlace:
    configurable = config["configurable"]
    return ThreadPlace(_thread(configurable["thread_id"]), key(configurable.get("checkpoint_ns") or ""))


def _config(place: ThreadPlace, checkpoint: bytes) -> RunnableConfig:
    return {
        "configurable": {
            "thread_id": text_of(place.thread),
            "checkpoint_ns": text_of(place.namespace),
            "checkpoint_id": text_of(checkpoint),
        }
    }


def _listing(
    config: RunnableConfig | None,
    before: RunnableConfig | None,
    wanted: dict[str, Any] | None,
    limit: int | None,
) -> CheckpointListing:
    configurable = config["configurable"] if config else {}
    namespace = configurable.get("checkpoint_ns")
    given = get_checkpoint_id(config) if config else None
    bound = get_checkpoint_id(before) if before else None
    return CheckpointListing(
        _thread(configurable["thread_id"]) if "thread_id" in configurable else None,
        None if namespace is None else key(namespace),
        key(given) if given else None,
        key(bound) if bound else None,
        None,
        PAGE if wanted or limit is None else max(1, min(limit, PAGE)),
    )


def _fits(found: CheckpointTuple, wanted: dict[str, Any] | None) -> bool:
    metadata = cast(dict[str, Any], found.metadata)
    return all(metadata.get(name) == value for name, value in (wanted or {}).items())
