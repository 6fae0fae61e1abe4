"""Pytest, your own store in ten lines:

    from recollect.pytest_plugin import MemoryStoreSuite
    from shop.memory import ChatMemory

    class TestChatMemory(MemoryStoreSuite):
        engine = "redis"
        policy = ("aof-everysec", "rdb")

        @staticmethod
        def factory(endpoint):
            return ChatMemory(endpoint.url)

Every policy × fault becomes one test on a real engine. Fixtures (`redis_engine`, `endpoint` …) are there for your own
tests.

Pytest imports this module in every project that has recollect installed. It must cost those projects nothing, so the
kit is imported only once a suite is collected or an engine is asked for.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

import pytest

# Imported, not named in `pytest_plugins`: that would make pytest read the metadata of every distribution again.
from recollect.printable import counted
from recollect.verify.suite.service_fixture import remembered, service_under_test  # noqa: F401

if TYPE_CHECKING:
    from types import ModuleType

    from recollect.verify.engines import Attached, Endpoint, Engine
    from recollect.verify.matrix.selection import FaultCase
    from recollect.verify.suite.declaring import Chosen
    from recollect.verify.suite.suite import Bench, Suite

MARKER = "recollect"
ENGINE_FIXTURES = {f"{name}_engine": name for name in ("redis", "postgres", "chroma", "sqlite")}
URL_VARIABLES = ("RECOLLECT_REDIS_URL", "RECOLLECT_POSTGRES_URL")
SESSIONS_KEPT = 3
"""How many sessions keep their histories in pytest's cache, for `recollect replay`."""


class MemoryStoreSuite:
    """Base class of a test class that puts one store through policies × faults, each a test of its own.

    Only `factory` and `engine` are needed. An attribute that takes several values also takes one string. The marker
    `recollect` (`@pytest.mark.recollect(policy="rdb")`) overrides these attributes, the command line overrides both.
    """

    factory: ClassVar[Callable[..., Any] | str]
    """A static method, or the name of a factory: ``package.module:factory``."""
    engine: ClassVar[str | None] = None
    """``redis``, ``redis@7``, ``valkey``, ``postgres``, ``sqlite``, ``chroma``."""
    policy: ClassVar[str | Sequence[str]] = ()
    fault: ClassVar[str | Sequence[str]] = ()
    variant: ClassVar[str | Sequence[str]] = ()
    workload: ClassVar[str | Sequence[str]] = ()
    engine_config: ClassVar[str | None] = None
    """Your redis.conf or postgresql.conf, relative to the test file; the policy is then `custom`."""
    previous: ClassVar[Callable[..., Any] | str | None] = None
    """The last release's factory, for `older-writer` and `newer-writer`."""
    retain: ClassVar[str | None] = None
    """How long memory must live, such as ``7d``."""
    require: ClassVar[str | None] = None
    """``written`` or ``fsynced``: documented losses worse than this fail too."""
    strict: ClassVar[bool] = False
    """Every documented loss fails, and so does `exposed`."""
    writers: ClassVar[int | None] = None
    full: ClassVar[bool] = False
    """Every policy, fault and variant."""

    pytestmark: ClassVar[list[pytest.MarkDecorator]] = [pytest.mark.recollect]

    def test_survives(self, recollect_case: FaultCase, request: pytest.FixtureRequest) -> None:
        _survive(request.node, type(self), recollect_case)


# ---- options and marker


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("recollect", "memory stores on real engines, with real faults")
    for name, options in {
        "engine": {
            "metavar": "ENGINE",
            "action": "append",
            "default": [],
            "help": "Version of an engine, such as redis@7 or valkey; repeatable.",
        },
        "provider": {
            "metavar": "PROVIDER",
            "help": "Where engines come from: system, wheel, docker, compose:FILE#SERVICE.",
        },
        "url": {
            "metavar": "URL",
            "action": "append",
            "default": [],
            "help": f"An engine that you run: used, never broken; repeatable. Also {', '.join(URL_VARIABLES)}.",
        },
        "seed": {"metavar": "N", "type": int, "help": "Repeats the schedules of an earlier session."},
        "faults": {"metavar": "FAULT,…", "help": "These faults instead of the suites' own; all: every one."},
        "out": {"metavar": "DIR", "help": "Folder for histories; in pytest's cache by default."},
    }.items():
        group.addoption(f"--recollect-{name}", **options)  # type: ignore[arg-type]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "recollect(engine, policy, fault, variant, workload, retain, require, strict): runs on a real memory engine; "
        "the arguments choose which, and what happens to it. -m 'not recollect' leaves such tests out.",
    )


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """pytest-xdist: every worker gets the session's seed and folder."""
    node.workerinput["recollect"] = _stamp(node.config)


# ---- what was chosen for the session


@dataclass
class _PluginState:
    """Our state in one pytest session, made when first needed."""

    chosen: Chosen
    folder: Path
    suites: dict[type, list[Suite]] = field(default_factory=dict)
    """For each class, one suite per engine it runs on."""
    bench: Bench | None = None


_SESSION = pytest.StashKey[_PluginState]()
_STAMP = pytest.StashKey[tuple[int, str]]()


def _session(config: pytest.Config) -> _PluginState:
    if _SESSION not in config.stash:
        seed, name = _stamp(config)
        config.stash[_SESSION] = _PluginState(_chosen(config, seed), _folder(config, name))
    return config.stash[_SESSION]


def _chosen(config: pytest.Config, seed: int) -> Chosen:
    declaring = _kit()
    given = config.getoption
    if given("--recollect-url") and given("--recollect-provider"):
        raise pytest.UsageError("--recollect-url names an engine that runs: leave out --recollect-provider")
    from_environment = [os.environ[name] for name in URL_VARIABLES if os.environ.get(name)]
    try:
        urls = declaring.urls_by_engine([*from_environment, *given("--recollect-url")])
    except declaring.EngineError as error:
        raise pytest.UsageError(str(error)) from None
    faults = (given("--recollect-faults") or "").split(",")
    return cast(
        "Chosen",
        declaring.Chosen(
            engines=tuple(given("--recollect-engine")),
            provider=given("--recollect-provider"),
            urls=urls,
            faults=tuple(name.strip() for name in faults if name.strip()),
            seed=seed,
        ),
    )


def _kit() -> ModuleType:
    """The kit, imported only now."""
    try:
        from recollect.verify.suite import declaring
    except ImportError as error:
        if (error.name or "").startswith("recollect"):
            raise
        raise pytest.UsageError(f"recollect needs {error.name}: pip install 'recollect[verify]'") from None
    return declaring


def _stamp(config: pytest.Config) -> tuple[int, str]:
    """The seed and the name of this session, the same in all of its processes."""
    if _STAMP not in config.stash:
        given = config.getoption("--recollect-seed")
        seed = int(time.time()) if given is None else given
        from recollect.verify import run_folder

        given_by_xdist = getattr(config, "workerinput", {}).get("recollect")
        config.stash[_STAMP] = given_by_xdist or (seed, run_folder.session_name(seed))
    return config.stash[_STAMP]


def _folder(config: pytest.Config, name: str) -> Path:
    if given := config.getoption("--recollect-out"):
        return config.invocation_params.dir / str(given)
    if config.pluginmanager.has_plugin("cacheprovider"):
        return Path(config.cache.mkdir("recollect")) / name
    return config.rootpath / ".recollect" / name


# ---- from a class to its tests


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.cls is None or "recollect_case" not in metafunc.fixturenames:
        return
    suites = _suites(metafunc.config, metafunc.cls, metafunc.definition)
    from recollect.verify.explore.orders_first import case_for
    from recollect.verify.matrix.selection import fault_cases

    found = [
        case._replace(engine=suite.request.engine or "") if len(suites) > 1 else case
        for suite in suites
        for case in (case_for(suite.request, suite.target), *fault_cases(suite.request, suite.target))
        if case is not None
    ]
    metafunc.parametrize("recollect_case", found, ids=[case.name for case in found])


def _suite_of(session: _PluginState, cls: type | None, case: FaultCase) -> Suite | None:
    for suite in session.suites.get(cls or type(None), ()):
        if case.engine in ("", suite.request.engine):
            return suite
    return None


def _suites(config: pytest.Config, cls: type, node: pytest.Item) -> list[Suite]:
    session = _session(config)
    if cls not in session.suites:
        declaring = _kit()
        try:
            session.suites[cls] = declaring.declare(cls, _marked(node), session.chosen)
        except (declaring.BadRequest, declaring.EngineError, ValueError) as error:
            raise pytest.Collector.CollectError(f"{cls.__name__}: {error}") from None
    return session.suites[cls]


def _marked(node: pytest.Item) -> dict[str, Any]:
    """What the markers of a test and its class say; the nearest wins."""
    return {
        name: value
        for mark in reversed(list(node.iter_markers(MARKER)))
        for name, value in mark.kwargs.items()
    }


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test that uses one of our engines gets the marker if it does not have it."""
    for item in items:
        if _engines_of(item) and item.get_closest_marker(MARKER) is None:
            item.add_marker(MARKER)


def _engines_of(item: pytest.Item) -> list[str]:
    """Our engine fixtures that a test uses; the project's own fixture of the same name is not ours."""
    known = getattr(getattr(item, "_fixtureinfo", None), "name2fixturedefs", None) or {}
    return [
        name
        for name in (*ENGINE_FIXTURES, "endpoint")
        if name in known and known[name][-1].func.__module__ == __name__
    ]


def pytest_report_collectionfinish(config: pytest.Config, items: list[pytest.Item]) -> list[str]:
    cells = sum(_case(item) is not None for item in items)
    if not cells or _SESSION not in config.stash:
        return []
    session = config.stash[_SESSION]
    return [f"recollect: seed {session.chosen.seed}, {counted(cells, 'cell')}, histories in {session.folder}"]


# ---- running


def _survive(item: pytest.Item, cls: type, case: FaultCase) -> None:
    session = _session(item.config)
    suite = _suite_of(session, cls, case)
    assert suite is not None, "it was declared when the test was collected"
    judged = _bench(item.config).judge(suite, case, _ahead(item, session))
    item.user_properties += [("recollect_status", judged.status), ("recollect_seed", session.chosen.seed)]
    item.user_properties += [("recollect_note", judged.note)] if judged.note else []
    item.user_properties += [("recollect_replay", judged.replay)] if judged.replay else []
    if judged.outcome == "skipped":
        pytest.skip(judged.text)
    if judged.outcome == "failed":
        pytest.fail(judged.text, pytrace=False)


def _bench(config: pytest.Config) -> Bench:
    from recollect.verify import run_folder
    from recollect.verify.matrix.pool import CellPool
    from recollect.verify.suite.suite import Bench

    session = _session(config)
    if session.bench is None:
        try:
            run_folder.join(session.folder, _stamp(config)[1])  # until this process ends
        except run_folder.FolderInUse as error:
            pytest.exit(f"recollect: {error} with --recollect-out", returncode=pytest.ExitCode.USAGE_ERROR)
        alone = hasattr(config, "workerinput")  # the other cores are busy with pytest-xdist's other workers
        session.bench = Bench(session.folder, CellPool(1 if alone else min(2, os.cpu_count() or 1)))
    return session.bench


def _ahead(item: pytest.Item, session: _PluginState) -> Iterator[tuple[Suite, FaultCase]]:
    """The cells that come next, for an idle core. A pytest-xdist worker does not know which those are."""
    if hasattr(item.config, "workerinput"):
        return
    items = item.session.items
    for later in items[items.index(item) + 1 :]:
        case = _case(later)
        suite = None if case is None else _suite_of(session, getattr(later, "cls", None), case)
        if case is None or suite is None:
            return
        yield suite, case


def _case(item: pytest.Item) -> FaultCase | None:
    call = getattr(item, "callspec", None)
    return None if call is None else call.params.get("recollect_case")


def pytest_sessionfinish(session: pytest.Session) -> None:
    if _SESSION not in session.config.stash:
        return
    ours = session.config.stash[_SESSION]
    if ours.bench is not None:
        ours.bench.close()
    if not hasattr(session.config, "workerinput") and not session.config.getoption("--recollect-out"):
        from recollect.verify import run_folder

        run_folder.forget_old_sessions(ours.folder.parent, SESSIONS_KEPT)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """What passed although something was lost, or its caller left unprotected: nobody should have to read the engine's
    manual to find out."""
    lines = []
    for report in terminalreporter.stats.get("passed", []):
        said = dict(getattr(report, "user_properties", ()))
        if "recollect_note" in said and report.when == "call":
            lines += [report.nodeid, *(f"  {line}" for line in str(said["recollect_note"]).splitlines())]
    if lines:
        terminalreporter.section("documented losses, and callers left unprotected (recollect)")
        for line in lines:
            terminalreporter.line(line)


# ---- fixtures


def _started(request: pytest.FixtureRequest, name: str) -> Iterator[Engine | Attached]:
    declaring = _kit()
    from recollect.verify import engines
    from recollect.verify.target.login import logged_in

    chosen = _session(request.config).chosen
    try:
        wanted = declaring.wishes({}, _marked(request.node))
        url = chosen.url(name)
        if url is not None:
            engine: Engine | Attached = engines.attach(url.reveal())
        else:
            engine = engines.create(chosen.engine(name), wanted.get("policy"), provider=chosen.provider)
        engine.start()
    except (declaring.BadRequest, declaring.EngineError) as error:
        pytest.fail(f"{name}: {error}", pytrace=False)
    try:
        with logged_in(engine.endpoint):
            yield engine
    finally:
        engine.close() if isinstance(engine, engines.Engine) else engine.stop()


@contextmanager
def _alone(engine: Engine) -> Iterator[Engine]:
    """Its login is known to drivers meanwhile; closed at the end."""
    from recollect.verify.target.login import logged_in

    try:
        with logged_in(engine.endpoint):
            yield engine
    finally:
        engine.close()


@pytest.fixture(scope="session")
def recollect_engine(request: pytest.FixtureRequest) -> Callable[..., AbstractContextManager[Engine]]:
    """An engine for a fixture of your own, of any scope: ``with recollect_engine("redis@7", "aof-always") as engine``,
    or of your own testcontainer: ``with RedisContainer("redis:7") as made, recollect_engine(made) as engine``."""
    declaring = _kit()

    def engine_of(what: Any, policy: str | None = None) -> AbstractContextManager[Engine]:
        from recollect.verify import engines

        try:
            if not isinstance(what, str):
                if policy is not None:
                    pytest.fail("a container of yours has the policy that you gave it", pytrace=False)
                return _alone(engines.hand_over(what))
            chosen = _session(request.config).chosen
            engine = engines.create(chosen.engine(what), policy, provider=chosen.provider)
            engine.start()
        except (declaring.BadRequest, declaring.EngineError) as error:
            pytest.fail(f"{what}: {error}", pytrace=False)
        return _alone(engine)

    return engine_of


@pytest.fixture
def redis_engine(request: pytest.FixtureRequest) -> Iterator[Engine | Attached]:
    """A Redis of this test's own: `endpoint`, `kill()`, `restart()`, `stop()`, `wipe()`."""
    yield from _started(request, "redis")


@pytest.fixture
def postgres_engine(request: pytest.FixtureRequest) -> Iterator[Engine | Attached]:
    """A PostgreSQL of this test's own."""
    yield from _started(request, "postgres")


@pytest.fixture
def chroma_engine(request: pytest.FixtureRequest) -> Iterator[Engine | Attached]:
    """A Chroma of this test's own."""
    yield from _started(request, "chroma")


@pytest.fixture
def sqlite_engine(request: pytest.FixtureRequest) -> Iterator[Engine | Attached]:
    """A SQLite file of this test's own."""
    yield from _started(request, "sqlite")


@pytest.fixture
def endpoint(request: pytest.FixtureRequest) -> Endpoint:
    """Where the test's engine answers: the engine named by its marker, or the one whose fixture it also uses."""
    declaring = _kit()
    used = [name for name in request.fixturenames if name in ENGINE_FIXTURES]
    wanted = _marked(request.node).get("engine")
    engine = wanted or (ENGINE_FIXTURES[used[0]] if used else None)
    if engine is None:
        with suppress(declaring.BadRequest):
            engine = _session(request.config).chosen.engine(None)
    if engine is None:
        pytest.fail(
            "endpoint of which engine? @pytest.mark.recollect(engine='redis'), or --recollect-engine",
            pytrace=False,
        )
    engine_fixture = request.getfixturevalue(f"{declaring.family(engine)}_engine")
    return cast("Endpoint", engine_fixture.endpoint)


@pytest.fixture
def namespace(request: pytest.FixtureRequest) -> str:
    """A word that no other test uses, for session ids. On an engine given by its address, only these are cleaned up."""
    if any(name in request.fixturenames for name in (*ENGINE_FIXTURES, "endpoint")):
        given = request.getfixturevalue("endpoint").namespace
        if given is not None:
            return str(given)
    import uuid

    return f"recollect-{uuid.uuid4().hex[:12]}"
