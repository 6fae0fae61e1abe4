"""`recollect chat`: the demo service."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from recollect import private
from recollect.chat.serving import serve
from recollect.chat.settings import TOKEN_VARIABLE, ChatSettings
from recollect.commands.console import echo

_DEFAULTS = ChatSettings()


def chat(
    memory: Annotated[
        str, typer.Option(help="Where memory is kept: sqlite:///folder/file.db or postgresql://host/db.")
    ] = _DEFAULTS.memory,
    conversations: Annotated[
        str | None,
        typer.Option(
            help="Keep conversations elsewhere: any store's address, such as redis+cluster://h1,h2. "
            "What is remembered of them stays in --memory."
        ),
    ] = None,
    port: Annotated[int, typer.Option(min=1, max=65535)] = _DEFAULTS.port,
    host: Annotated[str, typer.Option(help="Address to listen on; loopback by default.")] = _DEFAULTS.host,
    index: Annotated[
        str,
        typer.Option(
            help="The vector index: auto, none, chroma:///folder, http://host:port or pgvector://…."
        ),
    ] = _DEFAULTS.index,
    durability: Annotated[
        str, typer.Option(help="What a reply waits for: buffered, written or fsynced.")
    ] = _DEFAULTS.durability,
    witness: Annotated[
        str | None, typer.Option(help="A file kept elsewhere that notices a wiped or swapped memory.")
    ] = None,
    allow_ephemeral: Annotated[
        bool, typer.Option("--allow-ephemeral", help="Start on storage that dies with the container.")
    ] = False,
    workers: Annotated[int, typer.Option(min=1, max=64)] = 1,
    model: Annotated[
        str | None, typer.Option(help="A model of an OpenAI-compatible endpoint; without it, a stand-in.")
    ] = None,
    base_url: Annotated[str | None, typer.Option(help="The endpoint's address.")] = None,
) -> None:
    """Chat with a memory that is acknowledged only once it is durable. The page is at http://HOST:PORT/."""
    settings = ChatSettings(
        memory=memory,
        conversations=conversations,
        port=port,
        host=host,
        index=index,
        durability=durability,
        witness=witness,
        allow_ephemeral=allow_ephemeral,
        workers=workers,
        model=model,
        base_url=base_url,
        token=os.environ.get(TOKEN_VARIABLE) or None,
        file_mode=private.from_environment(),
    )
    serve(settings, lambda: echo(f"recollect chat: http://{host}:{port}/", err=True))
