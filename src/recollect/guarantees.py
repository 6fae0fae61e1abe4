"""What each engine itself promises: engine × policy × fault → which anomalies its documentation allows.

A table with sources, and its look-up. A `Promise` that allows nothing says that nothing acknowledged may be
lost, changed or reordered. `window_s` bounds a tail loss; None beside an allowed loss means unbounded. The
sentences are shown to operators as they are.

Rules are looked up from the specific to the general: (engine, policy), then the engine, then any engine, then
"keeps everything". Where the documentation is silent nothing is allowed: an engine that loses data in a way it
never documented has broken its promise. Valkey promises what Redis promises.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from recollect import promises_of_groups as groups
from recollect.promise_rules import ALL, LOUD, TAIL, Rule

DurabilityName = Literal["buffered", "written", "fsynced"]

DURABILITIES: tuple[DurabilityName, ...] = ("buffered", "written", "fsynced")
"""Weakest first."""

ENGINES: dict[str, tuple[str, ...]] = {
    "redis": ("none", "rdb", "aof-no", "aof-everysec", "aof-always", "mixed", "custom"),
    "postgres": ("default", "async-commit", "fsync-off", "custom"),
    "sqlite": ("wal-full", "wal-normal", "delete-full", "delete-extra", "custom"),
    "chroma": ("embedded", "server", "custom"),
}
MADE_OF = {
    "redis-cluster": "redis",
    "redis-sentinel": "redis",
    "postgres-ha": "postgres",
    "patroni": "postgres",
}
"""Engines made of several servers, and what each server is. They promise what their servers promise, except where the
group has rules of its own."""
ENGINES |= {name: ENGINES[server] for name, server in MADE_OF.items()}
for _group in ("redis-cluster", "redis-sentinel"):
    ENGINES[_group] = (*ENGINES["redis"][:-1], *groups.MIN_REPLICAS, "custom")
ENGINES["postgres-ha"] = ("asynchronous", "any-1", "first-2", "custom")
ENGINES["patroni"] = ("asynchronous", "synchronous", "quorum", "custom")
ALIASES = {
    "valkey": "redis",
    "postgresql": "postgres",
    "valkey-cluster": "redis-cluster",
    "valkey-sentinel": "redis-sentinel",
}

FAULTS: tuple[str, ...] = (
    "none",
    "restart",
    "kill-engine",
    "kill-app",
    "kill-app-at-line",
    "power-loss",
    "slow-fsync",
    "fsync-error",
    "disk-full",
    "wipe-volume",
    "bit-rot",
    "restore",
    "concurrent-writers",
    "cancel",
    "lost-ack",
    "latency",
    "cut",
    "half-open",
    "pause",
    "pool-exhausted",
    "refused",
    "clock-back",
    "clock-frozen",
    "clock-forward",
    "evict",
    "ttl-drift",
    "replica-lag",
    "failover",
    "older-writer",
    "newer-writer",
    "policy-change",
    "kill-engine-at-line",
    "upgrade",
    "downgrade",
    "node-kill",
    "kill-restart",
    "isolate-primary",
    "isolate-sentinels",
    "promoted-behind",
    "two-primaries",
    "restart-all",
    "reshard",
    "lose-shard",
)

# Faults that can strike a single engine as it is configured; the others need an operator or a second node.
UNPROVOKED_FAULTS: tuple[str, ...] = (
    "power-loss",
    "kill-engine",
    "restart",
    "slow-fsync",
    "fsync-error",
    "kill-app",
    "disk-full",
)

# Where a message must be to survive the fault: with the kernel, or on the disk. Other faults take memory whatever its
# durability: an evicted session, a replica that had not received it, a wiped volume.
SURVIVES_IF: dict[str, DurabilityName] = {
    "power-loss": "fsynced",
    "fsync-error": "fsynced",
    "restart": "written",
    "kill-engine": "written",
    "kill-engine-at-line": "written",
    "slow-fsync": "written",
    "policy-change": "written",
    "disk-full": "written",
}

# Worst first: what cannot be trusted, then what is gone, then what is only late.
_SEVERITY: tuple[str, ...] = (
    "corrupted",
    "refuses-to-start",
    "unreadable",
    "silent-reset",
    "hole",
    "torn-turn",
    "lost-tail",
    "index-divergence",
    "stale-read",
    "non-monotonic-read",
)
LOSSES: frozenset[str] = frozenset(_SEVERITY[:7])


@dataclass(frozen=True)
class Promise:
    """What the engine's documentation allows for one engine, policy and fault.

    `remedy` is the setting that stops the loss, empty where nothing can be lost. `turns_max` bounds a
    loss by the number of turns, where the engine does. `unchecked`: the engine has no checksum that would notice, so
    what it returns may be wrong without an error; a caller is only safe with checksums of its own. `syncs`: how many
    syncs, one after the other, a write may have to wait for on top of the window, which is that of a quick disk.
    `told`: only what was acknowledged after a write had failed during the fault, so that its caller knew.
    """

    engine: str
    policy: str
    fault: str
    allows: frozenset[str]
    window_s: float | None
    sentence: str
    source: str
    remedy: str = ""
    turns_max: int | None = None
    unchecked: bool = False
    syncs: int = 0
    told: bool = False

    def reach_s(self, sync_s: float) -> float | None:
        """How far back a loss may reach on a disk whose slowest sync takes this long; None without a bound."""
        return None if self.window_s is None else self.window_s + self.syncs * sync_s

    @property
    def keeps_everything(self) -> bool:
        return not self.allows


_DEATH = ("kill-engine", "kill-engine-at-line", "slow-fsync")
_CRASH = (*_DEATH, "power-loss")
_REDIS_PERSISTENCE = "Redis documentation, Persistence"
_AOF_FLUSH = (
    "Redis documentation, Persistence: How durable is the append only file; aof.c flushAppendOnlyFile"
)
_PG_ASYNC = (
    "PostgreSQL documentation, 30.4 Asynchronous Commit; 19.5 wal_writer_delay; xlog.c XLogBackgroundFlush"
)
_SQLITE_SYNC = "SQLite documentation, PRAGMA synchronous"
_EVERYSEC_REMEDY = "`appendfsync always` fsyncs before each acknowledgement"

# `everysec`: a write that is acknowledged just after a background fsync began is held back until that one ends (two
# seconds at the most), the next begins a second after the last one at the earliest, and it has to end, too: with fsyncs
# that take D it is safe after max(1 s, D) + D.
_GARBAGE = "; a file that ends in garbage makes Redis refuse to start"
_EVERYSEC = (
    Rule(
        ("power-loss", "fsync-error"),
        (*TAIL, "refuses-to-start"),
        2.0,
        f"at most about one second of acknowledged writes (two when fsync is slow), tail only{_GARBAGE}",
        f"{_AOF_FLUSH}; if my AOF gets corrupted",
        _EVERYSEC_REMEDY,
        syncs=2,
    ),
    Rule(
        (*_DEATH, "disk-full"),  # which ends in a kill, and a disk that has just been full may be slow
        TAIL,
        2.0,
        "usually nothing; up to two seconds of acknowledged writes while fsync is slow, tail only",
        _AOF_FLUSH,
        _EVERYSEC_REMEDY,
    ),
)

# The WAL writer sleeps for wal_writer_delay after each flush, so a round is one flush and one delay, and a commit waits
# for at most three rounds. The documentation's "three times wal_writer_delay" assumes flushes that take no time; with
# `slow-fsync` (1.5 s for each) it is 3 × (1.5 + 0.2) s.
_ASYNC_SENTENCE = (
    "the last commits, at most three times wal_writer_delay (0.6 s by default) and, where the disk is slow, three "
    "flushes more; tail only"
)
_ASYNC_COMMIT = tuple(
    Rule(faults, TAIL, window_s, _ASYNC_SENTENCE, _PG_ASYNC, "`synchronous_commit = on`", syncs=3)
    for faults, window_s in (
        (
            ("kill-engine", "kill-engine-at-line", "power-loss", "fsync-error", "disk-full"),
            0.6,
        ),  # all end in a crash
        (("slow-fsync",), 5.1),
    )
)

_RULES: dict[tuple[str, str], tuple[Rule, ...]] = {
    ("redis", "none"): (
        Rule(
            (*_CRASH, "restart", "fsync-error", "disk-full"),
            ALL,
            None,
            "everything: without persistence Redis comes back empty",
            f"{_REDIS_PERSISTENCE}: No persistence",
            "`CONFIG SET appendonly yes` on the live server, wait for the rewrite to finish, then persist it",
        ),
        Rule(
            ("policy-change", "upgrade", "downgrade"),
            (*ALL, *LOUD),
            None,
            "everything: each of these is a restart, and without persistence Redis comes back empty",
            f"{_REDIS_PERSISTENCE}: No persistence",
            "`CONFIG SET appendonly yes` on the live server, wait for the rewrite to finish, then persist it",
        ),
    ),
    ("redis", "rdb"): (
        Rule(
            (*_CRASH, "fsync-error", "disk-full"),
            ALL,
            None,
            "everything since the last snapshot (with the default save points up to an hour)",
            f"{_REDIS_PERSISTENCE}: RDB disadvantages; redis.conf, save",
            "`CONFIG SET appendonly yes` on the live server, wait for the rewrite to finish, then persist it",
        ),
        Rule(
            ("bit-rot",),
            LOUD,
            None,
            "nothing silently: a snapshot ends in a checksum, and a damaged one is refused at start",
            "redis.conf, rdbchecksum",
            "`rdbchecksum yes`, and a backup",
        ),
    ),
    ("redis", "aof-no"): (
        Rule(
            ("power-loss", "fsync-error"),
            (*TAIL, "refuses-to-start", "does-not-recover"),
            None,
            f"everything that the kernel has not written back, commonly 30 seconds, tail only{_GARBAGE}",
            f"{_REDIS_PERSISTENCE}: How durable is the append only file; if my AOF gets corrupted",
            "`appendfsync everysec` bounds it to about a second, `appendfsync always` to nothing",
        ),
    ),
    ("redis", "aof-everysec"): _EVERYSEC,
    ("redis", "mixed"): _EVERYSEC,
    ("postgres", "async-commit"): _ASYNC_COMMIT,
    ("postgres", "fsync-off"): (
        Rule(
            ("power-loss", "fsync-error"),
            ("corrupted", "refuses-to-start", "unreadable", "torn-turn", "phantom", "duplicate", *ALL),
            None,
            "anything: without fsync a power loss can corrupt the whole database beyond repair",
            "PostgreSQL documentation, 19.5 Write Ahead Log: fsync",
            "`fsync = on`",
        ),
    ),
    ("sqlite", "wal-normal"): (
        Rule(
            ("power-loss", "fsync-error"),
            (*TAIL, "silent-reset", "does-not-recover"),
            None,
            "every transaction since the last checkpoint, tail only; the database stays consistent",
            f"{_SQLITE_SYNC}: NORMAL; Write-Ahead Logging, 2.2",
            "`PRAGMA synchronous=FULL` on every connection",
        ),
    ),
    ("sqlite", "delete-full"): (
        Rule(
            ("power-loss",),
            TAIL,
            None,
            "the last acknowledged transaction: the journal is removed without a sync of its directory",
            f"{_SQLITE_SYNC}: EXTRA",
            "`PRAGMA synchronous=EXTRA`, or `journal_mode=WAL` with `synchronous=FULL`",
            turns_max=1,
        ),
    ),
}

_CHROMA_CRASH = Rule(
    _CRASH,
    ("index-divergence",),
    None,
    "no document, but the vector index is never fsynced: it may lag behind the rows or need a rebuild",
    "chromadb 1.5.9, local HNSW segment: persisted every sync_threshold records, files not fsynced",
    "rebuild the index from the rows after a crash",
)
for _policy in ("embedded", "server"):
    _RULES["chroma", _policy] = (_CHROMA_CRASH,)

# For every policy of an engine.
_ENGINE_RULES: dict[str, tuple[Rule, ...]] = {
    "redis": (
        Rule(
            ("failover",),
            ALL,
            None,
            "the writes that the promoted replica had not received: replication is asynchronous",
            "Redis documentation, High availability with Sentinel: consistency under partitions; Replication",
            "`WAIT` for a replica before acknowledging narrows it; `min-replicas-to-write` bounds it",
        ),
        Rule(
            ("evict",),
            ALL,
            None,
            "whole sessions, when memory is full and `maxmemory-policy` permits eviction",
            "Redis documentation, Key eviction",
            "`maxmemory-policy noeviction`",
        ),
        Rule(
            ("bit-rot",),
            LOUD,
            None,
            "an append-only file has no checksum: a bit that flips in its format stops the start, one in a record comes"
            " back as other content",
            f"{_REDIS_PERSISTENCE}: What should I do if my AOF gets corrupted; aof.c loadSingleAppendOnlyFile",
            "a checksum in every record, as our stores have it, and a backup",
            unchecked=True,
        ),
        Rule(
            # The manual warns that a plain restart can lose data. That warns an operator who has read it, but not a
            # caller who finds an empty memory and no error, and no document allows that.
            ("policy-change",),
            LOUD,
            None,
            "nothing silently: started with other persistence Redis loads another file and may come up empty, which"
            " must reach the caller as an error, never as an empty memory",
            f"{_REDIS_PERSISTENCE}: How I can switch to AOF, if I'm currently using dump.rdb snapshots",
            "`CONFIG SET appendonly yes` on the live server, wait for the rewrite to finish, then persist it",
        ),
    ),
    "postgres": (
        Rule(
            ("failover",),
            TAIL,
            None,
            "the commits that the promoted standby had not received: replication is asynchronous by default",
            "PostgreSQL documentation, 27.2.8 Synchronous Replication",
            "`synchronous_standby_names` with `synchronous_commit = on`",
        ),
        Rule(
            ("upgrade", "downgrade"),
            ("refuses-to-start",),
            None,
            "nothing, but another major version refuses the data folder until pg_upgrade has run",
            "PostgreSQL documentation, 18.6 Upgrading a PostgreSQL Cluster",
            "run pg_upgrade, or dump and restore",
        ),
        Rule(
            ("bit-rot",),
            LOUD,
            None,
            "with data checksums (the default since 18) a damaged page is an error; without them a bit that flips in a"
            " row comes back as other content",
            "PostgreSQL documentation, 28.2 Data Checksums",
            "`pg_checksums --enable` while the server is down, or initdb --data-checksums; and a backup",
            unchecked=True,
        ),
    ),
    "sqlite": (
        Rule(
            ("bit-rot",),
            LOUD,
            None,
            "the pages of a database have no checksum: what still looks well-formed comes back as other content; a log"
            " is read up to its first damaged frame",
            "SQLite documentation, The Checksum VFS Shim; Database File Format, 4.1",
            "a checksum in every record, as our stores have it; `PRAGMA integrity_check`; a backup",
            unchecked=True,
        ),
        # The kernel forgets pages that it could not write. Whoever opens the file next still reads them, goes on behind
        # them in the log, and a power loss leaves a gap there.
        Rule(
            ("fsync-error",),
            ("refuses-to-start", "silent-reset", *TAIL),
            None,
            "after a sync has failed, and a caller was told so, later commits may be lost with the power, and a"
            " checkpoint that fails can damage the file",
            "SQLite documentation, How To Corrupt An SQLite Database File, 3 Failure to sync",
            "`PRAGMA wal_checkpoint(TRUNCATE)` before the first write to a file that was opened again, or a connection"
            " that stays open",
            told=True,
        ),
    ),
    "chroma": (
        Rule(
            ("bit-rot",),
            LOUD,
            None,
            "neither the pages of Chroma's SQLite file nor its vector files have a checksum",
            "SQLite documentation, The Checksum VFS Shim; chromadb 1.5.9, local HNSW segment",
            "keep the rows elsewhere, with a checksum each, and rebuild the index from them",
            unchecked=True,
        ),
    ),
}

_LIKE = {"kill-restart": "kill-engine", "restart-all": "kill-engine"}
"""One server among several promises what it would promise alone."""

_ANY_ENGINE: tuple[Rule, ...] = (
    Rule(
        ("replica-lag",),
        ("stale-read", "own-write-missing", "non-monotonic-read"),
        None,
        "nothing, but reads from a replica may be old: replication is asynchronous",
        "Redis documentation, Replication; PostgreSQL documentation, 26.4 Hot Standby",
        "read what must be fresh from the primary",
    ),
    Rule(
        ("wipe-volume",),
        LOUD,
        None,
        "deleted files are gone; the loss must reach the caller as an error, never as an empty memory",
        "no engine documents that it notices a deleted folder",
        "`open_store(url, witness=path)` turns it into StoreReplaced",
    ),
    Rule(
        ("restore",),
        (*LOUD, *TAIL, "silent-reset", "resurrected"),
        None,
        "what was acknowledged before the backup began is there; what is newer is gone, as the backup does not have it",
        "Redis documentation, Persistence: Backing up Redis data; PostgreSQL documentation, 25 Backup and Restore;"
        " SQLite documentation, Online Backup API, and How To Corrupt An SQLite Database File, 1.2",
        "more frequent backups, a replica, archived logs; `open_store(url, witness=path)` tells that it was set back",
    ),
    Rule(
        ("downgrade",),
        LOUD,
        None,
        "nothing silently, but an older release may refuse or not find a newer release's files",
        "release notes: downgrades are not supported",
        "dump and restore",
    ),
)

_KEEPS: dict[str, tuple[str, str]] = {
    "redis": ("nothing that was acknowledged is lost", f"{_REDIS_PERSISTENCE}: AOF advantages"),
    "postgres": ("nothing that was acknowledged is lost", "PostgreSQL documentation, 30.1 Reliability"),
    "sqlite": ("nothing that was acknowledged is lost", "SQLite documentation, Atomic Commit In SQLite"),
    "chroma": ("no acknowledged document is lost", "chromadb 1.5.9: documents are SQLite transactions"),
}
_OF_SETTINGS = frozenset({"failover"})
"""What the rules of several servers allow only because nobody configured it otherwise; the others hold whatever the
settings. One server gets a replica that nobody waits for, and replication is asynchronous then."""
_CUSTOM = "custom settings promise nothing we can look up, so nothing acknowledged may be lost"


def promise(engine: str, policy: str, fault: str, variant: str | None = None) -> Promise:
    """What the engine promises when this fault strikes under this policy.

    How it strikes can matter (`failover` by agreement loses nothing, `failover@force` may); without a `variant` it is
    the weakest of its promises. For two faults at once (``a+b``) it is the weaker of the two.
    """
    name, policy = _known(engine, policy)
    if "+" in fault:
        return _weaker(fault, [promise(engine, policy, part) for part in fault.split("+")])
    if fault not in FAULTS:
        raise ValueError(f"unknown fault {fault!r}; known are {', '.join(FAULTS)}")
    server = MADE_OF.get(name, name)
    rules = (*_ENGINE_RULES.get(server, ()), *_ANY_ENGINE)
    if policy == "custom" and name in MADE_OF:
        rules = tuple(rule for rule in rules if not _OF_SETTINGS & set(rule.faults))
    elif policy != "custom":
        of_group = (*groups.OF_POLICY.get((name, policy), ()), *groups.OF_ENGINE.get(name, ()))
        kept = "none" if policy in groups.MIN_REPLICAS else policy
        rules = (*of_group, *_RULES.get((server, kept), ()), *rules)
    for rule in rules:
        if rule.is_for(fault, variant) or rule.is_for(_LIKE.get(fault), variant):
            return Promise(
                engine,
                policy,
                fault,
                frozenset(rule.allows),
                rule.window_s,
                rule.sentence,
                rule.source,
                rule.remedy,
                rule.turns_max,
                rule.unchecked,
                rule.syncs,
                rule.told,
            )
    sentence, source = _KEEPS[server]
    if policy == "custom":
        sentence = _CUSTOM
    return Promise(engine, policy, fault, frozenset(), 0.0, sentence, source)


def _weaker(fault: str, parts: list[Promise]) -> Promise:
    """Everything that any of them allows, within the widest window."""
    allowing = [part for part in parts if part.allows] or parts[:1]
    windows = [part.window_s for part in allowing]
    turns = [part.turns_max for part in allowing]
    return Promise(
        parts[0].engine,
        parts[0].policy,
        fault,
        frozenset(name for part in parts for name in part.allows),
        None if None in windows else max(window for window in windows if window is not None),
        "; and ".join(dict.fromkeys(part.sentence for part in allowing)),
        "; ".join(dict.fromkeys(part.source for part in allowing)),
        "; ".join(dict.fromkeys(part.remedy for part in allowing if part.remedy)),
        None if None in turns else sum(most for most in turns if most is not None),
        any(part.unchecked for part in parts),
        max(part.syncs for part in allowing),
    )


def what_can_be_lost(engine: str, policy: str, faults: Iterable[str] = UNPROVOKED_FAULTS) -> list[Promise]:
    """The promises that allow a loss without a warning, worst first, one per sentence."""
    found: dict[str, Promise] = {}
    for fault in faults:
        candidate = promise(engine, policy, fault)
        if candidate.allows & LOSSES and not candidate.told:
            found.setdefault(candidate.sentence, candidate)
    return sorted(found.values(), key=_badness)


def _badness(candidate: Promise) -> tuple[int, float]:
    worst = min(_SEVERITY.index(name) for name in candidate.allows if name in _SEVERITY)
    return worst, -(float("inf") if candidate.window_s is None else candidate.window_s)


def _known(engine: str, policy: str) -> tuple[str, str]:
    name = ALIASES.get(engine, engine)
    if name not in ENGINES:
        raise ValueError(f"unknown engine {engine!r}; known are {', '.join((*ENGINES, *ALIASES))}")
    if policy not in ENGINES[name]:
        raise ValueError(f"unknown policy {policy!r} of {engine}; known are {', '.join(ENGINES[name])}")
    return name, policy
