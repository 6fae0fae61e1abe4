"""Which cells a run has: targets × policies × faults × workloads, as data, and why the others are left out.

The core tier is what shows most within a minute; `--full` takes every policy, fault and variant. A cell that cannot run
stays in the list with its reason: it is `skipped`, and never counted as held.
"""

import shutil
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path
from textwrap import fill
from typing import NamedTuple

import msgspec

from recollect.guarantees import MADE_OF
from recollect.secret import SecretUrl, shown
from recollect.verify import engines, providers
from recollect.verify.providers import compose
from recollect.verify.providers import url as addresses
from recollect.verify.running.faults import FAULTS, fault_named
from recollect.verify.running.faults.compound import PAIRS, CannotCombine, is_compound
from recollect.verify.running.faults.process import ONE_WRITER
from recollect.verify.running.scenario import KINDS, SESSIONS, Scenario
from recollect.verify.running.workloads import WORKLOADS
from recollect.verify.target.interface_choice import form_in
from recollect.verify.target.registry import BUILT_IN, USUAL, named_targets


class BadRequest(Exception):
    """What was asked for does not exist; the message says what does."""


class VerifyRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What the user asked for; empty means "choose for me"."""

    targets: tuple[str, ...] = ()
    overview: bool = False
    """No target was named: all our own stores at once, some of them with fewer cells."""
    engine: str | None = None
    engines: tuple[str, ...] = ()
    """Several engines, or several versions of one: `by_engine` makes a request for each."""
    provider: str | None = None
    url: SecretUrl | None = None
    engine_config: str | None = None
    policies: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    """``kill-engine``, or with its variant ``kill-engine@bgsave``."""
    workloads: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    previous: str | None = None
    previous_python: str | None = None
    retain_s: float | None = None
    path: tuple[str, ...] = ()
    full: bool = False
    seed: int = 0
    shard: tuple[int, int] = (1, 1)
    writers: int | None = None
    sessions: int | None = None
    session_messages: int | None = None
    programs: tuple[str, ...] = ()
    """What the clients do when orders of events are tried; if empty, whatever the target's abilities allow."""

    @property
    def provider_name(self) -> str:
        return (self.provider or "").partition(":")[0]

    @property
    def users_settings(self) -> bool:
        """Whether the user's own configuration decides what survives: then the policy is `custom`."""
        return self.engine_config is not None or self.url is not None or self.provider_name == compose.NAME


class Cell(msgspec.Struct, frozen=True):
    """One scenario to run, or the reason why it is not."""

    scenario: Scenario
    skipped: str | None = None


FILLED_MAX = 10_000_000
"""The most messages that a cell writes before its fault: more would take hours, and prove nothing else."""

CORE_POLICIES: dict[str, tuple[str, ...]] = {
    "sqlite": ("wal-full", "wal-normal", "delete-extra"),
    "redis": ("aof-everysec", "aof-always", "rdb"),
    "postgres": ("default", "async-commit"),
    "chroma": ("server", "embedded"),
    "redis-cluster": ("aof-everysec", "none"),
    "redis-sentinel": ("aof-everysec", "none"),
    "postgres-ha": ("asynchronous", "any-1", "first-2"),
    "patroni": ("asynchronous", "synchronous", "quorum"),
}

# The first policy of an engine gets all of these; the others only the durability faults, where policies differ.
CORE_FAULTS: tuple[str, ...] = (
    "none",
    "kill-engine",
    "power-loss",
    "restart",
    "kill-app",
    "cancel",
    "lost-ack",
    "kill-app-at-line",
    "disk-full",
    "slow-fsync",
    "fsync-error",
    "clock-back",
    "clock-frozen",
    "clock-forward",
    "wipe-volume",
    "replica-lag",
    "cut",
    "half-open",
    "pause",
    "policy-change",
    "evict",
    "failover",
    "pool-exhausted",
    "latency",
    "newer-writer",
    "older-writer",
    "ttl-drift",
    "upgrade",
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
OF_GROUPS: tuple[str, ...] = CORE_FAULTS[-9:]
"""Those of engines of several servers."""
DURABILITY_FAULTS: tuple[str, ...] = ("kill-engine", "restart", "power-loss", "slow-fsync")

# When all stores share one minute, the less common engines get only these policies and faults.
OVERVIEW: dict[str, tuple[str, tuple[str, ...]]] = {
    "chroma": ("server", ("kill-engine", "power-loss", "disk-full", "slow-fsync", "fsync-error")),
}

# Workloads of the faults that only mean something with a particular use of memory; the others take the default.
# Cells without a fault come first: plain use by one writer and by several, then the uses that are hard for each.
WORKLOADS_OF: dict[str, tuple[str, ...]] = {
    "none@one-writer": (
        "search",
        "turns",
        "rewrite",
        "contents",
        "mixed",
        "trimmed",
        "forget",
        "compact",
        "changes",
    ),
    "none@several-writers": ("turns", "rewrite", "summarise", "context", "follow", "search", "changes"),
    "none@several-callers": ("turns", "rewrite"),
    "concurrent-writers": (
        "turns",
        "mixed",
        "contents",
        "trimmed",
        "rewrite",
        "compact",
        "summarise",
        "forget",
        "context",
        "search",
        "changes",
    ),
}
BESIDE: dict[str, tuple[str, ...]] = dict.fromkeys(
    ("kill-app", "kill-app-at-line", "power-loss"), ("changes",)
)
"""Workloads tried besides the first default that fits: a change that is cut off, and one that is not on disk yet."""
WRITERS_OF: dict[tuple[str, str], int] = {("concurrent-writers", "search"): 4, ("none", "search"): 4}
"""Where more than the usual number of writers is needed."""
DEFAULT_WORKLOADS: tuple[str, ...] = ("search", "turns", "rewrite")


def select(request: VerifyRequest, abilities: dict[str, frozenset[str]]) -> list[Cell]:
    """Every cell of the request, the most telling first. `abilities` are those of each target."""
    check(request)
    cells = [
        cell
        for target in request.targets or USUAL
        for cell in _of_target(request, target, abilities.get(target))
    ]
    cells.sort(key=lambda cell: _rank(cell.scenario, abilities.get(cell.scenario.target) or frozenset()))
    index, count = request.shard
    return cells[index - 1 :: count]


def check(request: VerifyRequest) -> None:
    """Refuses names that do not exist, and suggests the nearest."""
    for target in (*request.targets, request.previous or ""):
        if "://" in target:
            raise BadRequest(
                f"{shown(target)} is an address, not a store: name the store, and say --provider with the address"
            )
    previous = request.previous
    if previous and ":" not in previous and previous not in (*BUILT_IN, *named_targets()):
        raise BadRequest(f"--previous {previous!r}: the factory of the other release, package.module:factory")
    parts = tuple(
        part
        for name, _ in map(_split, request.faults)
        for part in name.split("+")
        if part or not is_compound(name)
    )
    for names, known, what in (
        (parts, FAULTS, "fault"),
        (request.workloads, WORKLOADS, "workload"),
    ):
        for name in names:
            if name not in known:
                raise BadRequest(f"unknown {what} {name!r}{_nearest_or_all(name, known)}")
    _check_compounds(request)
    _check_variants(request)
    _check_settings(request)
    _check_size(request)
    for target in request.targets:
        engine = engine_of(request, target)
        try:
            known_policies = engines.policies(engine)
        except engines.EngineError as unknown:
            raise BadRequest(str(unknown)) from None
        for policy in request.policies:
            if policy not in known_policies and policy != "custom":
                raise BadRequest(
                    f"unknown policy {policy!r} of {engine}{_nearest_or_all(policy, known_policies)}"
                )


def _check_compounds(request: VerifyRequest) -> None:
    for name, _ in map(_split, request.faults):
        if is_compound(name):
            try:
                fault_named(name)
            except CannotCombine as wrong:
                raise BadRequest(f"--fault {wrong}") from None


def _check_variants(request: VerifyRequest) -> None:
    if any(request.variants) and not request.faults:
        raise BadRequest(f"--variant {request.variants[0]} needs the --fault that it is a variant of")
    for name, own in map(_split, request.faults):
        fault = fault_named(name)
        for variant in request.variants if own is None else (own,):
            if variant not in fault.variants and not fault.named_variant:
                if is_compound(variant):
                    lasting = f"{PAIRS[0]}@{fault_named(PAIRS[0]).variants[0]}"
                    raise BadRequest(
                        f"--fault {name}@{variant}: a part has no variant; the compound has, e.g. {lasting}"
                    )
                known = [name for name in fault.variants if name]
                raise BadRequest(
                    f"unknown variant {variant!r} of {fault.name}{_nearest_or_all(variant, known)}"
                )


def _split(fault: str) -> tuple[str, str | None]:
    """``kill-engine@bgsave`` into the fault and its variant; None if no variant is named."""
    name, at, variant = fault.partition("@")
    return name, variant if at else None


def _check_settings(request: VerifyRequest) -> None:
    """Refuses settings that would be silently ignored."""
    if request.policies and any(policy != "custom" for policy in request.policies):
        if request.engine_config is not None:
            raise BadRequest(
                f"--policy {request.policies[0]} and --engine-config exclude each other: a file of your own is the"
                " policy 'custom'"
            )
        if request.users_settings:
            raise BadRequest(
                f"--policy {request.policies[0]}: an engine that you run has your own settings; leave --policy out"
            )
    if "custom" in request.policies and not request.users_settings:
        raise BadRequest("--policy custom needs your configuration file: --engine-config FILE")
    if request.engine_config is not None and not Path(request.engine_config).is_file():
        raise BadRequest(
            f"--engine-config {request.engine_config}: no such file; give the path of a readable file"
        )
    name = request.provider_name
    if name and name not in providers.NAMES:
        raise BadRequest(f"unknown provider {shown(name)!r}{_nearest_or_all(name, providers.NAMES)}")
    if name == compose.NAME:
        try:
            compose.check((request.provider or "").partition(":")[2])
        except engines.EngineError as wrong:
            raise BadRequest(f"--provider: {wrong}") from None
    if request.previous_python is not None and shutil.which(request.previous_python) is None:
        raise BadRequest(
            f"--previous-python {request.previous_python}: not a program; give the path of a Python"
        )


def _check_size(request: VerifyRequest) -> None:
    sessions, messages = request.sessions or SESSIONS, request.session_messages or 0
    if sessions * messages > FILLED_MAX:
        raise BadRequest(
            f"--sessions {sessions} with --messages-per-session {messages} is {sessions * messages:,} messages in each "
            f"cell; at most {FILLED_MAX:,}"
        )


def by_engine(request: VerifyRequest) -> list[VerifyRequest]:
    """A request for each engine asked for; a built-in target runs on those of its kind, or on its usual one."""
    if len(request.engines) < 2:
        return [request]
    alone = msgspec.structs.replace(request, engines=())
    parts: list[VerifyRequest] = []
    usual = [target for target in request.targets if target in BUILT_IN]
    for engine in dict.fromkeys(request.engines):
        name = engine.partition("@")[0]
        fitting = [target for target in request.targets if target not in BUILT_IN or _runs_on(target, name)]
        if not fitting:
            raise BadRequest(
                f"--engine {engine}: none of {', '.join(request.targets)} runs on it; leave it out"
            )
        usual = [target for target in usual if target not in fitting]
        parts.append(msgspec.structs.replace(alone, targets=tuple(fitting), engine=engine))
    if usual:
        parts.append(msgspec.structs.replace(alone, targets=tuple(usual), engine=None))
    return parts


def engine_of(request: VerifyRequest, target: str) -> str:
    """The engine a target runs on: the one asked for, or the one a built-in is named after."""
    at_address = None if request.url is None else addresses.engine_of(request.url.reveal())
    if at_address in MADE_OF:
        request = _on_group(request, at_address)
    if request.engine is not None:
        asked = request.engine.partition("@")[0]
        if target in BUILT_IN and not _runs_on(target, asked):
            fitting = [target, *(group for group, server in MADE_OF.items() if server == target)]
            raise BadRequest(
                f"the built-in target {target!r} runs on {' or '.join(fitting)}, not on {asked!r}"
            )
        if (named := named_targets().get(target)) and KINDS.get(asked, asked) != named.kind:
            raise BadRequest(f"the target {target!r} runs on {named.kind}, not on {asked!r}")
        return request.engine
    if target in BUILT_IN:
        return target
    if named := named_targets().get(target):
        return named.engine
    if ":" not in target:
        known = (*BUILT_IN, *named_targets())
        raise BadRequest(
            f"unknown target {target!r}{_nearest(target, known)}; name a built-in ({', '.join(BUILT_IN)}), a "
            "released store (recollect verify --list) or package.module:factory"
        )
    raise BadRequest(
        f"target {target!r} needs --engine: one of {', '.join(engines.ENGINES)}, such as --engine redis@7"
    )


def _on_group(request: VerifyRequest, engine: str) -> VerifyRequest:
    """An address of several servers says by itself what it is; the kind asked for must not differ."""
    asked = (request.engine or engine).partition("@")[0]
    if KINDS.get(asked, asked) != engine:
        raise BadRequest(
            f"{asked} was asked for, but the address is one of {engine}: ask for {engine} instead"
        )
    return msgspec.structs.replace(request, engine=request.engine or engine)


def _runs_on(target: str, engine: str) -> bool:
    """Whether a built-in target runs on this engine, or on the servers that it is made of."""
    kind = KINDS.get(engine, engine)
    return target in (kind, MADE_OF.get(kind))


class FaultCase(NamedTuple):
    """The policy a target runs on and the fault it meets; the workload depends on what the target can do."""

    policy: str
    fault: str
    variant: str
    engine: str = ""
    """With its version, if a suite runs on several."""

    @property
    def name(self) -> str:
        """Without the variant if it is the fault's usual one."""
        usual = self.variant == fault_named(self.fault).variants[0]
        return "-".join(filter(None, (self.engine, self.policy, self.fault, "" if usual else self.variant)))


def fault_cases(request: VerifyRequest, target: str) -> list[FaultCase]:
    """The request as policies × faults × variants, known before the target is opened."""
    engine = engine_of(request, target).partition("@")[0]
    name = KINDS.get(engine, engine)
    return [
        FaultCase(policy, fault, variant)
        for number, policy in enumerate(_policies(request, name))
        for fault, own in map(_split, _faults(request, name, first_policy=number == 0))
        for variant in _variants(request, name, fault, own)
    ]


def _variants(request: VerifyRequest, engine: str, fault: str, own: str | None) -> Sequence[str]:
    if own is not None:
        return (own,)
    row = fault_named(fault)
    if request.variants or request.full:
        return request.variants or row.variants
    usual = row.variants[: row.usual_variants]
    if request.overview:
        return usual
    return (*usual, *(variant for variant, where in row.usual_on.items() if engine in where))


def _of_target(request: VerifyRequest, target: str, abilities: frozenset[str] | None) -> Iterable[Cell]:
    for case in fault_cases(request, target):
        for workload, misfit in _workloads(request, case, abilities):
            writers = request.writers or WRITERS_OF.get((case.fault, workload))
            if case.variant == ONE_WRITER:
                writers = 1
            scenario = Scenario(
                target=target,
                engine=engine_of(request, target),
                policy=case.policy,
                fault=case.fault,
                variant=case.variant,
                workload=workload,
                provider=request.provider,
                url=request.url,
                engine_config=request.engine_config,
                previous=request.previous,
                previous_python=request.previous_python,
                retain_s=request.retain_s,
                form=form_in(abilities or ()),
                path=request.path,
                seed=request.seed,
            )
            size = {
                "writers": writers,
                "sessions": request.sessions,
                "session_messages": request.session_messages,
            }
            scenario = msgspec.structs.replace(
                scenario, **{name: value for name, value in size.items() if value is not None}
            )
            yield Cell(scenario, misfit or fault_named(case.fault).obstacle(scenario))


def _policies(request: VerifyRequest, engine: str) -> Sequence[str]:
    if request.users_settings:
        return ("custom",)
    if request.policies:
        return request.policies
    if request.overview and not request.full and engine in OVERVIEW:
        return OVERVIEW[engine][:1]
    usual = tuple(engines.policies(engine)) if request.full else CORE_POLICIES[engine]
    if request.provider_name == "docker":
        return tuple(policy for policy in usual if policy in engines.policies_in_containers(engine)) or usual
    return usual


def _faults(request: VerifyRequest, engine: str, *, first_policy: bool) -> Sequence[str]:
    if request.faults:
        return (*_parts_alone(request.faults), *request.faults)
    if request.full:
        return (*FAULTS, *PAIRS)
    if request.overview and engine in OVERVIEW:
        return OVERVIEW[engine][1]
    wanted = CORE_FAULTS if first_policy else DURABILITY_FAULTS
    several = engine in MADE_OF  # what cannot happen to the engine asked for is not listed as left out
    return tuple(name for name in wanted if name in FAULTS and (several or name not in OF_GROUPS))


def _parts_alone(faults: Sequence[str]) -> list[str]:
    """The parts of compound faults that were not asked for by name: what one of them shows alone does not take
    both."""
    asked = {_split(fault)[0] for fault in faults}
    parts = [part for name in asked if is_compound(name) for part in name.split("+")]
    return [f"{part}@{FAULTS[part].variants[0]}" for part in dict.fromkeys(parts) if part not in asked]


def _workloads(
    request: VerifyRequest, case: FaultCase, abilities: frozenset[str] | None
) -> Sequence[tuple[str, str | None]]:
    """The workloads to run. One that was asked for by name but does not fit the target is listed with the reason."""
    own = WORKLOADS_OF.get(case.fault) or WORKLOADS_OF.get(f"{case.fault}@{case.variant}")
    wanted = request.workloads or own or DEFAULT_WORKLOADS
    if abilities is None:
        return [(wanted[0], None)]  # the target does not open: one cell says so
    fitting = [(name, WORKLOADS[name].misfit(abilities)) for name in wanted]
    if request.workloads:
        return fitting
    possible = [(name, misfit) for name, misfit in fitting if misfit is None]
    if request.overview and not request.full and case.fault == "none":
        # All stores in a minute: faults too.
        return possible[:2] if case.variant == ONE_WRITER else possible[:1]
    if own:
        return possible
    beside = () if request.overview and not request.full else BESIDE.get(case.fault, ())
    return [*possible[:1], *((name, None) for name in beside if WORKLOADS[name].misfit(abilities) is None)]


def _rank(scenario: Scenario, abilities: frozenset[str]) -> tuple[int, int, int]:
    order = {name: rank for rank, name in enumerate(CORE_FAULTS)}
    policies = CORE_POLICIES.get(scenario.engine_kind, ())
    behind = policies.index(scenario.policy) if scenario.policy in policies else len(policies)
    if scenario.fault == "none":
        # Plain use by one writer, then by several, then what is hard: a budget that is short leaves out the end.
        return -1, scenario.workload not in DEFAULT_WORKLOADS, behind
    if scenario.fault == "clock-forward" and (scenario.retain_s is not None or "expires" in abilities):
        return 0, behind, 0  # somebody has said how long memory lives: that is not left out for lack of time
    last = len(order) + is_compound(scenario.fault)  # after its parts
    return order.get(scenario.fault, last) + 2 * behind, behind, 0


def _nearest_or_all(name: str, known: Iterable[str]) -> str:
    """The name that was probably meant; only if there is none, all of them."""
    return _nearest(name, known) or "; known:\n" + fill(
        ", ".join(known), 78, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False
    )


def _nearest(name: str, known: Iterable[str]) -> str:
    close = get_close_matches(name, list(known), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
