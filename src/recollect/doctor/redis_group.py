"""A Redis or Valkey Cluster, or a primary with sentinels: what its servers would lose, alone and together.

Each server is asked as `redis` asks one. Besides, a cluster is asked who owns which slots and who copies whom (CLUSTER
NODES), and sentinels are asked what they watch (SENTINEL MASTER, SENTINEL REPLICAS): nothing is changed. All are asked
side by side, so that one that hangs holds up the answer of the others for `OTHERS_S` only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from recollect.doctor import redis
from recollect.doctor.diagnosis import OTHERS_S, Diagnosis, LoginRefused, Symptom, ordered
from recollect.doctor.redis_answers import RedisAnswers
from recollect.errors import CannotOpen, EngineUnavailable
from recollect.guarantees import promise
from recollect.stores.redis.address import Address, parse_address
from recollect.stores.redis.sentinel import LOGIN_WANTED
from recollect.stores.redis.slots import SLOTS, Node, Topology, View, read_view
from recollect.stores.redis.wire import Reply, ReplyError, pack

WITHOUT_AOF = ("none", "rdb")
SENTINELS_MIN = 3
Answer = TypeVar("Answer")
_OF_ONE = ("one-node-of-a-cluster", "is-a-replica", "failover")
"""Reported for the whole group instead of for each server."""


@dataclass(frozen=True)
class ExaminedGroup:
    """What was found out. `primaries` and `replicas` are the servers that answered."""

    address: str
    kind: str
    primaries: dict[Node, RedisAnswers]
    replicas: dict[Node, RedisAnswers]
    copies: dict[Node, int]
    """How many replicas each primary has that are up."""
    silent: tuple[str, ...]
    """Servers that did not answer, and why."""
    settings: dict[str, str]
    unowned: int = 0
    """Slots without an owner that is up."""

    @property
    def engine(self) -> str:
        return f"{next(iter(self.primaries.values())).engine}-{self.kind}"


async def examine(url: str, timeout_s: float) -> Diagnosis:
    address = parse_address(url)
    found = await (_cluster if address.kind == "cluster" else _sentinels)(address, timeout_s)
    if not found.primaries:
        raise EngineUnavailable(
            f"{address.shown}: no primary answers ({'; '.join(found.silent) or 'none known'})"
        )
    return diagnose(found)


def diagnose(group: ExaminedGroup) -> Diagnosis:
    policies = {answers.policy for answers in group.primaries.values()}
    return Diagnosis(
        address=group.address,
        engine=group.engine,
        version=next(iter(group.primaries.values())).version,
        policy=policies.pop() if len(policies) == 1 else None,
        settings=group.settings | _settings_of_each(group),
        findings=ordered(
            [
                *_of_each(group),
                _unowned(group),
                _uncopied(group),
                _restarts_empty(group),
                _failover(group),
                _few_sentinels(group),
                _silent(group),
            ]
        ),
    )


# What the servers say -----------------------------------------------------------------------------


async def replicas_of(url: str, timeout_s: float) -> dict[Node, Node]:
    """Each replica that is up, and its primary."""
    address = parse_address(url)
    if address.kind == "cluster":
        view, up, _ = await _seen(address, timeout_s)
        return _followed(view, up)
    told, _, _ = await _told(address, timeout_s)
    primary, copies = _named(told)
    return dict.fromkeys(copies, primary)


async def _seen(address: Address, timeout_s: float) -> tuple[View, list[list[str]], Node]:
    """The cluster as one node sees it, the lines of those that are up, and which node that was."""
    reply, asked = await _first(address, address.nodes, pack("CLUSTER", "NODES"), timeout_s)
    view = read_view(reply, asked, by_hostname=address.has_tls)
    if view is None:
        raise CannotOpen(f"{address.shown} is not a cluster: {_said(reply)}; give a node of one")
    assert isinstance(reply, bytes)
    lines = [line.split() for line in reply.decode("utf-8", "replace").splitlines()]
    up = [words for words in lines if len(words) > 7 and "fail" not in words[2] and words[0] in view.names]
    return view, up, asked


def _followed(view: View, up: list[list[str]]) -> dict[Node, Node]:
    return {view.names[words[0]]: view.names[words[3]] for words in up if words[3] in view.names}


async def _cluster(address: Address, timeout_s: float) -> ExaminedGroup:
    view, up, asked = await _seen(address, timeout_s)
    owners = Topology([view]).owners
    alive = {view.names[words[0]] for words in up}
    primaries = [node for node in dict.fromkeys(owners) if node is not None and node in alive]
    followed = _followed(view, up)
    replicas, copied = list(followed), list(followed.values())
    answers, silent = await _answers(address, [*primaries, *replicas], timeout_s)
    timeout = await _setting(address.at(asked), "cluster-node-timeout", min(timeout_s, OTHERS_S))
    return ExaminedGroup(
        address.shown,
        "cluster",
        {node: answers[node] for node in primaries if node in answers},
        {node: answers[node] for node in replicas if node in answers},
        {node: copied.count(node) for node in primaries},
        silent,
        {
            "primaries": str(len(primaries)),
            "replicas": str(len(replicas)),
            **({"cluster-node-timeout": timeout} if timeout else {}),
        },
        sum(node not in alive for node in owners),
    )


async def _told(address: Address, timeout_s: float) -> tuple[list[Reply], int, list[str]]:
    """What the first sentinel that answers says of primary and replicas, how many answer, and why the others do not."""
    question = pack("SENTINEL", "MASTER", address.service) + pack("SENTINEL", "REPLICAS", address.service)
    told: list[Reply] = []
    count, errors = 0, []
    found = await _side_by_side(
        address.nodes,
        lambda sentinel: _asked_sentinel(address, sentinel, question, timeout_s),
        address.sentinel,
        OTHERS_S,
    )
    for sentinel, replies in found.items():
        if isinstance(replies, CannotOpen):
            errors.append(str(replies))
            continue
        if isinstance(replies[0], ReplyError) and replies[0].code in LOGIN_WANTED:
            raise LoginRefused(f"the sentinel {address.at(sentinel).shown}: {replies[0].text}")
        if isinstance(replies[0], ReplyError):
            raise CannotOpen(f"{address.shown}: {replies[0].text}; name the service as the sentinels call it")
        told, count = told or replies, count + 1
    if not told:
        raise EngineUnavailable(f"{address.shown}: no sentinel answers ({'; '.join(errors)})")
    return told, count, errors


def _named(told: list[Reply]) -> tuple[Node, list[Node]]:
    """The primary, and the replicas that are up."""
    master = _fields(told[0])
    replicas = [_fields(one) for one in (told[1] if isinstance(told[1], list) else [])]
    up = [(one["ip"], int(one["port"])) for one in replicas if one.get("flags") == "slave"]
    return (master["ip"], int(master["port"])), up


async def _sentinels(address: Address, timeout_s: float) -> ExaminedGroup:
    told, count, errors = await _told(address, timeout_s)
    master = _fields(told[0])
    primary, up = _named(told)
    answers, silent = await _answers(address, [primary, *up], timeout_s)
    return ExaminedGroup(
        address.shown,
        "sentinel",
        {node: answers[node] for node in (primary,) if node in answers},
        {node: answers[node] for node in up if node in answers},
        {primary: len(up)},
        (*errors, *silent),
        {
            "replicas": str(len(up)),
            "sentinels": str(int(master.get("num-other-sentinels", "0")) + 1),
            "sentinels-that-answer": str(count),
            "quorum": master.get("quorum", ""),
            "down-after-milliseconds": master.get("down-after-milliseconds", ""),
        },
    )


async def _asked_sentinel(address: Address, sentinel: Node, question: bytes, timeout_s: float) -> list[Reply]:
    """Logs in only where a sentinel asks for it, as the store does."""
    place = address.sentinel(sentinel)
    replies = await redis.asked(place, question, 2, timeout_s)
    if address.sentinel_login and isinstance(replies[0], ReplyError) and replies[0].code == "NOAUTH":
        accepted, *replies = await redis.asked(place, pack(*address.sentinel_login) + question, 3, timeout_s)
        if isinstance(accepted, ReplyError):
            return [accepted]
    return replies


async def _first(
    address: Address, nodes: Sequence[Node], request: bytes, timeout_s: float
) -> tuple[Reply, Node]:
    found = await _side_by_side(
        nodes, lambda node: redis.asked(address.at(node), request, 1, timeout_s), address.at, 0.0
    )
    for node, replies in found.items():
        if not isinstance(replies, CannotOpen):
            return replies[0], node
    errors = [error for error in found.values() if isinstance(error, CannotOpen)]
    for error in errors:
        if isinstance(error, LoginRefused):
            raise error
    raise EngineUnavailable(f"{address.shown}: no node answers ({'; '.join(map(str, errors))})")


async def _side_by_side(
    nodes: Sequence[Node],
    ask: Callable[[Node], Awaitable[Answer]],
    place: Callable[[Node], Address],
    others_s: float,
) -> dict[Node, Answer | CannotOpen]:
    """What each of them says, or why it does not. Once one has answered, the others have so long."""
    tasks = [asyncio.ensure_future(ask(node)) for node in nodes]
    try:
        for task in asyncio.as_completed(tasks):
            with suppress(CannotOpen):
                await task
                break
        if tasks:
            await asyncio.wait(tasks, timeout=others_s)
    finally:
        for late in tasks:
            late.cancel()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    answers: dict[Node, Answer | CannotOpen] = {}
    for node, answer in zip(nodes, found, strict=True):
        if isinstance(answer, asyncio.CancelledError):
            answers[node] = EngineUnavailable(f"{place(node).shown}: {redis.silence(others_s)}")
        elif isinstance(answer, BaseException) and not isinstance(answer, CannotOpen):
            raise answer
        else:
            answers[node] = answer
    return answers


async def _answers(
    address: Address, nodes: Sequence[Node], timeout_s: float
) -> tuple[dict[Node, RedisAnswers], tuple[str, ...]]:
    """What those that answer say, and why the others do not."""
    limit_s = min(timeout_s, OTHERS_S)  # whoever named them has answered
    found = await _side_by_side(
        nodes, lambda node: redis.answers_of(address.at(node), limit_s), address.at, limit_s
    )
    return (
        {node: answers for node, answers in found.items() if isinstance(answers, RedisAnswers)},
        tuple(str(error) for error in found.values() if isinstance(error, CannotOpen)),
    )


async def _setting(address: Address, name: str, timeout_s: float) -> str:
    [reply] = await redis.asked(address, pack("CONFIG", "GET", name), 1, timeout_s)
    return _fields(reply).get(name, "") if isinstance(reply, list) else ""


def _fields(reply: Reply) -> dict[str, str]:
    words = (
        [item.decode("utf-8", "replace") for item in reply if isinstance(item, bytes)]
        if isinstance(reply, list)
        else []
    )
    return dict(zip(words[::2], words[1::2], strict=False))


def _said(reply: Reply) -> str:
    return reply.text if isinstance(reply, ReplyError) else "it does not answer CLUSTER NODES"


# What follows -------------------------------------------------------------------------------------


def _settings_of_each(group: ExaminedGroup) -> dict[str, str]:
    """By server and name: `127.0.0.1:7000 appendonly`."""
    return {
        f"{_shown([node])} {name}": value
        for node, answers in {**group.primaries, **group.replicas}.items()
        for name, value in redis.diagnose(answers).settings.items()
    }


def _of_each(group: ExaminedGroup) -> Iterable[Symptom]:
    """What is true of single servers, reported once with the servers it is true of. What a replica would lose once it
    is promoted is reported only if its primary would not lose it."""
    told: dict[tuple[str, str], tuple[Symptom, list[Node]]] = {}
    for node, answers in {**group.primaries, **group.replicas}.items():
        for symptom in redis.diagnose(answers).findings:
            known = (symptom.name, "loss") in told and node in group.replicas
            if symptom.name not in _OF_ONE and not known:
                told.setdefault((symptom.name, symptom.level), (symptom, []))[1].append(node)
    for symptom, nodes in told.values():
        if len(nodes) < len(group.primaries) + len(group.replicas):
            setting = " on ".join(filter(None, (symptom.setting, _shown(nodes))))
            symptom = msgspec.structs.replace(symptom, setting=setting)
        yield symptom


def _unowned(group: ExaminedGroup) -> Symptom | None:
    if not group.unowned:
        return None
    return Symptom(
        name="slots-without-owner",
        level="loss",
        sentence=f"can lose the sessions of {group.unowned:,} slots: nobody that is up owns them, so they can be "
        "neither read nor written",
        when=("lose-shard",),
        window="everything in them",
        setting=f"{SLOTS - group.unowned:,} of {SLOTS:,} slots have an owner that is up",
        procedure=(
            "CLUSTER NODES shows which primary failed: start it, or a replica of it, on its own data",
            "give the slots to another primary (redis-cli --cluster fix) only if that data is gone for good",
        ),
        source="Redis documentation, Scale with Redis Cluster",
    )


def _uncopied(group: ExaminedGroup) -> Symptom | None:
    alone = [node for node, count in group.copies.items() if not count]
    if not alone:
        return None
    return Symptom(
        name="no-replica",
        level="loss",
        sentence="can lose everything on a primary whose host is lost: no replica of it is up, and nothing takes over",
        when=("node-kill",),
        window="everything on it",
        setting=f"no replica of {_shown(alone)}",
        procedure=("add a replica to each primary, on another host, and wait until it is in step",),
        source="Redis cluster specification: availability",
    )


def _restarts_empty(group: ExaminedGroup) -> Symptom | None:
    found = [node for node, answers in group.primaries.items() if answers.policy in WITHOUT_AOF]
    if not found or not any(group.copies.get(node) for node in found):
        return None
    given = promise(f"redis-{group.kind}", group.primaries[found[0]].policy or "none", "kill-restart")
    return Symptom(
        name="restarts-empty",
        level="loss",
        sentence=f"can lose {given.sentence}",
        when=("kill-restart",),
        window="everything on it",
        setting=f"appendonly no on {_shown(found)}",
        procedure=(
            "on each running server: CONFIG SET appendonly yes, and wait until INFO persistence says "
            "aof_rewrite_in_progress:0",
            "until then, keep supervisors from starting a primary again before its replica has taken over",
        ),
        source=given.source,
    )


def _failover(group: ExaminedGroup) -> Symptom | None:
    if not any(group.copies.values()):
        return None
    given = promise(f"redis-{group.kind}", "aof-everysec", "isolate-primary")
    most = max(group.copies.values())
    needed = {answers.number("min-replicas-to-write") for answers in group.primaries.values()}
    lag_s = {answers.number("min-replicas-max-lag") for answers in group.primaries.values()}
    bounded = 0 not in needed and 0 not in lag_s
    timeout = group.settings.get("cluster-node-timeout", "")
    window_s = max(lag_s) if bounded else int(timeout) / 1000 if timeout.isdigit() else None
    words = ", ".join(f"{name} {value}" for name, value in group.settings.items() if "-" in name)
    return Symptom(
        name="failover",
        level="loss",
        sentence=f"can lose {given.sentence}; and what a replica had not received when it takes over",
        when=("isolate-primary", "promoted-behind", "failover"),
        window="no bound" if window_s is None else f"up to about {window_s:g} s",
        window_s=window_s,
        setting=f"min-replicas-to-write {', '.join(map(str, sorted(needed)))}; {words}",
        procedure=(
            f"open_store(url, replicas={most}): each append then waits until every copy that may take over has it",
            "on every server CONFIG SET min-replicas-to-write 1 and min-replicas-max-lag 10, so that a primary that is "
            "cut off stops taking writes; then CONFIG REWRITE",
        ),
        source=given.source,
    )


def _few_sentinels(group: ExaminedGroup) -> Symptom | None:
    known, answer = (int(group.settings.get(name, "0")) for name in ("sentinels", "sentinels-that-answer"))
    quorum = group.settings.get("quorum", "")
    needed = max(known // 2 + 1, int(quorum) if quorum.isdigit() else 0)
    if group.kind != "sentinel" or (known >= SENTINELS_MIN and answer >= needed):
        return None
    return Symptom(
        name="no-quorum",
        level="note",
        sentence=f"nothing may take over when the primary dies: {answer} of {known} sentinels answer, and {needed} "
        "have to agree",
        setting=f"{known} sentinels, {answer} of those in the address answer, quorum {quorum}",
        procedure=(
            "run three sentinels or more, on hosts of their own, and name all of them in the address",
        ),
        source="Redis documentation, High availability with Sentinel: fundamental things to know",
    )


def _silent(group: ExaminedGroup) -> Symptom | None:
    if not group.silent:
        return None
    return Symptom(
        name="servers-that-do-not-answer",
        level="cannot-tell",
        sentence=f"cannot tell what these would lose: {'; '.join(group.silent)}",
        procedure=("examine again when all of them answer",),
    )


def _shown(nodes: Iterable[Node]) -> str:
    return ", ".join(f"{host}:{port}" for host, port in nodes)
