"""Which policy an engine gets: a named one, its default, or the user's own file as `custom`."""

from __future__ import annotations

from collections.abc import Mapping

from recollect.verify.engines.options import EngineOptions
from recollect.verify.engines.protocols import Policy
from recollect.verify.host.errors import EngineError, UnknownName


def named(engine: str, policies: Mapping[str, Policy], name: str) -> Policy:
    if name not in policies:
        raise UnknownName(f"{engine} policy", name, policies)
    return policies[name]


def choose(engine: str, policies: Mapping[str, Policy], default: str, options: EngineOptions) -> Policy:
    if options.config is not None:
        if options.policy not in (None, "custom"):
            raise EngineError(
                f"policy {options.policy!r} and the file {options.config} exclude each other;"
                " a file of your own is the policy 'custom'"
            )
        if not options.config.is_file():
            raise EngineError(f"no configuration file {options.config}; give the path of a readable file")
        return Policy("custom", {}, {}, options.config.resolve())
    if options.policy == "custom":
        raise EngineError(
            "the policy 'custom' needs your configuration file; give it with --engine-config FILE"
        )
    return named(engine, policies, options.policy or default)
