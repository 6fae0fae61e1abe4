"""Engines that somebody else runs, reached by address. Their type has no `kill`: they cannot be broken by mistake."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qsl, quote, urlencode

from recollect.guarantees import MADE_OF
from recollect.secret import split_address
from recollect.verify.engines import postgres, redis
from recollect.verify.engines.endpoint import Endpoint
from recollect.verify.host.errors import EngineError, StartFailed
from recollect.verify.host.marker import Marker
from recollect.verify.providers import url as address_of
from recollect.verify.providers.server_address import places_of, sentinels_of, service_of
from recollect.verify.providers.url import Namespace, PostgresNamespace, RedisNamespace
from recollect.verify.wire import pgwire, resp

_OF_ALL_HOSTS = ("host", "port", "target_session_attrs")
"""Options of a PostgreSQL address that say which hosts there are, and which of them is meant."""


class AttachedEngine:
    """`start()` opens a namespace of our own, `stop()` removes it, `renew()` keeps its lease alive in a long run."""

    def __init__(self, url: str, *, allow_shared: bool = False) -> None:
        self.name = address_of.engine_of(url)
        self.provider = address_of.NAME
        self.policy = "custom"
        self._shown = address_of.without_credentials(url)
        marker = Marker.new()
        self._namespace: RedisNamespace | PostgresNamespace
        if MADE_OF.get(self.name, self.name) == "redis":
            self._namespace = RedisNamespace(url, marker, allow_shared=allow_shared)
        else:
            self._namespace = PostgresNamespace(url, marker)
        self._endpoint: Endpoint | None = None

    @property
    def endpoint(self) -> Endpoint:
        if self._endpoint is None:
            raise EngineError(f"{self._shown} has not been attached yet; call start() first")
        return self._endpoint

    @property
    def version(self) -> str:
        return self.endpoint.version

    def start(self) -> Endpoint:
        try:
            product, version = self._identify()
            opened = self._namespace.open()
        except (OSError, resp.RespError, pgwire.PgError) as error:
            raise StartFailed(
                f"{self._shown} cannot be used: {error}; is it up, and are the credentials right?"
            ) from error
        address = self._namespace.address
        service = service_of(self._namespace.url) if self.name == "redis-sentinel" else None
        self._endpoint = Endpoint(
            url=opened.url,
            engine=self.name,
            product=product,
            version=version,
            policy=self.policy,
            provider=self.provider,
            host=address.host,
            port=address.port,
            user=address.username if isinstance(address, resp.Address) else address.user,
            password=address.password,
            nodes=self._nodes(opened),
            service=service,
            namespace=opened.name,
        )
        return self._endpoint

    def _nodes(self, opened: Namespace) -> tuple[str, ...]:
        """One address for each node, sentinel or host, if there are several; of PostgreSQL, inside our namespace."""
        parts = split_address(opened.url)
        login, at, _ = parts.netloc.rpartition("@")
        family = parts.scheme.partition("+")[0].replace("valkey", "redis")
        tls = urlencode([pair for pair in parse_qsl(parts.query) if pair[0].startswith("ssl_")])
        rest = f"?{tls}" if tls else ""
        if self.name == "redis-cluster":
            return tuple(f"{family}://{login}{at}{_place(*node)}{rest}" for node in opened.nodes)
        if self.name == "redis-sentinel":
            return tuple(
                f"{family}://{_login_of(one)}{_place(one.host, one.port)}{rest}"
                for one in sentinels_of(opened.url)
            )
        if self.name == "postgres-ha":
            options = [pair for pair in parse_qsl(parts.query) if pair[0] not in _OF_ALL_HOSTS]
            rest = f"{parts.path}{'?' if options else ''}{urlencode(options, quote_via=quote)}"
            return tuple(
                f"{family}://{login}{at}{quote(one, safe=':[]')}{rest}" for one in places_of(opened.url)
            )
        return ()

    def renew(self) -> None:
        self._namespace.renew()

    def stop(self) -> None:
        """Remove our namespace. The engine itself keeps running."""
        if self._endpoint is not None:
            self._namespace.close()
            self._endpoint = None

    def settings(self) -> Mapping[str, str]:
        if isinstance(self._namespace, RedisNamespace):
            return redis.read_settings(self._namespace.find())
        return postgres.read_settings(self._namespace.find())

    def logs(self, lines_max: int = 40) -> str:
        """Empty: its log is elsewhere."""
        return ""

    def _identify(self) -> tuple[str, str]:
        if isinstance(self._namespace, RedisNamespace):
            return redis.identify(self._namespace.find())
        return postgres.identify(self._namespace.find())


def _place(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _login_of(at: resp.Address) -> str:
    return f"{quote(at.username or '', safe='')}:{quote(at.password, safe='')}@" if at.password else ""


def attach(url: str, *, allow_shared: bool = False) -> AttachedEngine:
    """An engine that the user prepared. `allow_shared` allows database 0 of a Redis that holds others' keys."""
    return AttachedEngine(url, allow_shared=allow_shared)
