"""The chat service over HTTP: routes and their shapes. What they do is in `recollect.chat.service`.

Every answer that reports a failure says in `error` whether the message was written: ``not-written`` (safe to send
again), ``outcome-unknown`` (send again with the same turn), ``memory-missing``, ``refused``, ``turn-reused`` (the turn
is already stored with another text), ``turn-forgotten``, ``model-failed``.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, StreamingResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from recollect import __version__
from recollect.bounds import is_sequence
from recollect.chat import page
from recollect.chat.documentation import documentation
from recollect.chat.limits import Limits
from recollect.chat.service import Answer, ChatService, StoredTurn, TurnForgotten, Used
from recollect.chat.settings import ChatSettings, from_environment
from recollect.errors import NotWritten, OutcomeUnknown, RecollectError, Refused, StoreReplaced, TurnReused
from recollect.message import Message, new_id
from recollect.recall.llm import ModelFailed
from recollect.recall.memory import Memory
from recollect.store import Receipt

ID_LENGTH_MAX = 200
TEXT_LENGTH_MAX = 8_000

User = Annotated[str, Query(min_length=1, max_length=ID_LENGTH_MAX, description="Whose memory it is.")]
SessionId = Annotated[str, Query(max_length=ID_LENGTH_MAX, description="The conversation.")]


class ChatRequest(BaseModel):
    """One message of a user."""

    user: str = Field(min_length=1, max_length=ID_LENGTH_MAX)
    session: str = Field(default="", max_length=ID_LENGTH_MAX)
    message: str = Field(min_length=1, max_length=TEXT_LENGTH_MAX)
    turn: str | None = Field(
        default=None,
        min_length=1,
        max_length=ID_LENGTH_MAX,
        description="An id for the message. Sent again with the same id, it is stored and answered once; "
        "another message with the same id is refused (409).",
    )
    stream: bool = Field(default=False, description="Server-sent events instead of one answer.")


class MemoryModel(BaseModel):
    id: int
    text: str
    created_at: float
    session: str | None
    message: str | None
    score: float | None = None


class ReceiptModel(BaseModel):
    """Where the message is stored, and what it survives."""

    first: int
    last: int
    durability: str
    replicas: int


class ChatReply(BaseModel):
    reply: str
    memories: list[MemoryModel] = Field(description="What the reply was made from.")
    noted: list[MemoryModel] = Field(description="What this message added to the memory.")
    receipt: ReceiptModel
    engine: dict[str, Any]
    turn: str


class HistoryItem(BaseModel):
    sequence: int
    role: str
    text: str
    timestamp: float
    turn: str | None
    damaged: str | None = None


class ConversationModel(BaseModel):
    session: str
    last_said: str = Field(description="What the user said last in it, cut short.")
    updated_at: float | None


class Forgotten(BaseModel):
    forgotten: int


class EverythingForgotten(BaseModel):
    memories: int
    conversations: int


class HealthModel(BaseModel):
    status: str
    durable: bool = Field(description="Whether the last write reached the durability asked for.")
    same_store: bool = Field(description="Whether the store is the one it was when the service started.")
    store: str = Field(description="The store's identity: another one is another memory.")
    last_write_at: float | None
    engine: dict[str, Any]
    error: str | None


def create_app(settings: ChatSettings | None = None) -> FastAPI:
    chosen = settings or from_environment()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service = await ChatService.open(chosen)
        app.state.service = service
        try:
            yield
        finally:
            # Requests have ended by now, and what they were promised is on disk; the index need not catch up.
            await service.close()

    app = FastAPI(
        title="recollect chat",
        version=__version__,
        summary="A chat whose memory is acknowledged only once it is durable.",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    app.add_middleware(Limits, settings=chosen)
    app.add_exception_handler(RecollectError, _report)
    app.add_exception_handler(RequestValidationError, _report_input)
    app.add_exception_handler(HTTPException, _report_http)
    _add_talking(app)
    _add_memories(app)
    _add_user(app)
    _add_pages(app, chosen)
    return app


def _service(request: Request) -> ChatService:
    service: ChatService = request.app.state.service
    return service


def _add_talking(app: FastAPI) -> None:
    @app.post("/chat", response_model=ChatReply, summary="Say something, and get an answer")
    async def chat(request: Request, body: ChatRequest) -> Any:
        """Answers once the message and the facts in it have reached the durability the service was started with.

        With `stream`, the events are `remembered` (it is durable), `piece` (part of the reply), and `reply` (all of it,
        as without `stream`), or `failed`. The `reply` is what is stored; its text differs from the pieces if another
        request with the same turn was answered first.
        """
        service = _service(request)
        said = await service.hear(body.user, body.session, body.message, body.turn or new_id())
        if body.stream:
            return StreamingResponse(_events(service, said), media_type="text/event-stream")
        return _reply(service, said, await service.answer(said))

    @app.get("/history", response_model=list[HistoryItem], summary="What was said in a session")
    async def history(
        request: Request, user: User, session: SessionId = "", last: Annotated[int, Query(ge=1, le=500)] = 100
    ) -> Any:
        return [_history_item(item) for item in await _service(request).history(user, session, last)]

    @app.delete("/history", status_code=204, summary="Forget what was said in a session")
    async def forget_history(request: Request, user: User, session: SessionId = "") -> None:
        await _service(request).forget_session(user, session)


def _add_user(app: FastAPI) -> None:
    @app.get(
        "/conversations", response_model=list[ConversationModel], summary="A user's sessions, newest first"
    )
    async def conversations(
        request: Request, user: User, limit: Annotated[int, Query(ge=1, le=100)] = 20
    ) -> Any:
        found = await _service(request).conversations(user, limit)
        return [
            ConversationModel(
                session=shown_text(each.session),
                last_said=shown_text(each.last_said),
                updated_at=each.updated_at,
            )
            for each in found
        ]

    @app.delete(
        "/everything", response_model=EverythingForgotten, summary="Forget a user: memories and conversations"
    )
    async def forget_everything(request: Request, user: User) -> Any:
        memories, conversations = await _service(request).forget_everything(user)
        return EverythingForgotten(memories=memories, conversations=conversations)


def _add_memories(app: FastAPI) -> None:
    @app.get("/memories", response_model=list[MemoryModel], summary="What is remembered about a user")
    async def memories(
        request: Request,
        user: User,
        before: int | None = None,
        limit: Annotated[int, Query(ge=1, le=500)] = 100,
    ) -> Any:
        found = await _service(request).recall.memories(user, before=before, limit=limit)
        return [_memory(memory) for memory in found]

    @app.delete("/memories/{memory}", response_model=Forgotten, summary="Forget one memory of a user")
    async def forget_one(request: Request, memory: int, user: User) -> Any:
        if not is_sequence(memory):
            return JSONResponse({"error": "not-found", "detail": "no memory can have this number"}, 404)
        return Forgotten(forgotten=await _service(request).recall.forget(user, memory))

    @app.delete("/memories", response_model=Forgotten, summary="Forget all memories of a user")
    async def forget_all(request: Request, user: User) -> Any:
        return Forgotten(forgotten=await _service(request).recall.forget(user))


def _add_pages(app: FastAPI, settings: ChatSettings) -> None:
    @app.get("/health", response_model=HealthModel, summary="Is the memory there, and is it durable?")
    async def health(request: Request) -> Any:
        service = _service(request)
        state = await service.health()
        status = "ok" if state.ok else "memory-missing" if not state.same_store else "failing"
        answer = HealthModel(
            status=status,
            durable=state.last_write_durable,
            same_store=state.same_store,
            store=service.store.identity,
            last_write_at=state.last_write_at,
            engine=service.engine(),
            error=state.error,
        )
        return JSONResponse(answer.model_dump(), 200 if state.ok else 503)

    @app.get("/", include_in_schema=False)
    async def index() -> HTMLResponse:
        return HTMLResponse(page.HTML, headers=page.HEADERS)

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(documentation(app.openapi()), headers=page.PLAIN_HEADERS)


async def _events(service: ChatService, said: StoredTurn) -> AsyncIterator[str]:
    yield _event("remembered", {"receipt": _receipt(said.receipt), "turn": said.turn})
    pieces: list[str] = []
    try:
        async for piece in service.pieces(said):
            pieces.append(piece)
            yield _event("piece", {"text": piece})
        answer = await service.keep(said, "".join(pieces))
    except RecollectError as error:
        yield _event("failed", {"error": _kind(error)[1], "detail": str(error)})
        return
    yield _event("reply", _reply(service, said, answer).model_dump())


def _event(name: str, content: Any) -> str:
    return f"event: {name}\ndata: {json.dumps(content, default=lambda model: model.model_dump())}\n\n"


def _reply(service: ChatService, said: StoredTurn, answer: Answer) -> ChatReply:
    return ChatReply(
        reply=shown_text(answer.text),
        memories=[_used(used) for used in answer.used],
        noted=[_memory(memory) for memory in said.noted],
        receipt=_receipt(said.receipt),
        engine=service.engine(),
        turn=said.turn,
    )


def _receipt(receipt: Receipt) -> ReceiptModel:
    return ReceiptModel(
        first=receipt.first,
        last=receipt.last,
        durability=receipt.durability.value,
        replicas=receipt.replicas,
    )


def _memory(memory: Memory, score: float | None = None) -> MemoryModel:
    return MemoryModel(
        id=memory.sequence,
        text=shown_text(memory.text),
        created_at=memory.created_at,
        session=_shown(memory.session),
        message=_shown(memory.message),
        score=score,
    )


def _used(used: Used) -> MemoryModel:
    return _memory(used.memory, round(used.score, 3))


def _history_item(item: Any) -> HistoryItem:
    message = item.message
    if not isinstance(message, Message):
        return HistoryItem(
            sequence=item.sequence,
            role="",
            text="",
            timestamp=0.0,
            turn=None,
            damaged=shown_text(message.reason),
        )
    return HistoryItem(
        sequence=item.sequence,
        role=shown_text(message.role),
        text=shown_text(message.text),
        timestamp=message.timestamp,
        turn=_shown(message.metadata.get("turn")),
    )


_KINDS: tuple[tuple[type[RecollectError], int, str], ...] = (
    (TurnReused, 409, "turn-reused"),
    (TurnForgotten, 409, "turn-forgotten"),
    (Refused, 422, "refused"),
    (StoreReplaced, 503, "memory-missing"),
    (NotWritten, 503, "not-written"),
    (OutcomeUnknown, 503, "outcome-unknown"),
    (ModelFailed, 502, "model-failed"),
)


def _kind(error: RecollectError) -> tuple[int, str]:
    for kind, status, name in _KINDS:
        if isinstance(error, kind):
            return status, name
    return 503, "memory-unavailable"


async def _report(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RecollectError)
    status, name = _kind(error)
    return JSONResponse({"error": name, "detail": shown_text(str(error))}, status)


async def _report_input(request: Request, error: Exception) -> JSONResponse:
    """Where the input is wrong, and what was expected. It does not repeat the input, which JSON may not be able to hold
    (NaN, half a surrogate pair)."""
    assert isinstance(error, RequestValidationError)
    problems = [{name: problem[name] for name in ("type", "loc", "msg")} for problem in error.errors()]
    return JSONResponse({"error": "refused", "detail": problems}, 422)


async def _report_http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    name = {404: "not-found", 405: "not-found"}.get(error.status_code, "refused")
    return JSONResponse({"error": name, "detail": error.detail}, error.status_code, error.headers)


def shown_text(text: str) -> str:
    """The text as an answer can carry it. The store keeps half a surrogate pair, but it is not valid Unicode."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _shown(value: Any) -> str | None:
    """A field of a record that others may have written: text, or nothing."""
    return shown_text(value) if isinstance(value, str) else None
