"""Recall regression: measures a memory on a file of cases, and compares with an earlier measurement.

A case writes memories, asks questions, and says what must and what must not come back:

    k: 3
    score_min: 0.1
    embedder: hashing
    cases:
      - name: pets
        memories: {cat: "The user has a cat called Miso.", car: "The user drives a Volvo."}
        messages: ["I live in Kyoto."]            # optional: these go through the summariser
        questions:
          - ask: "what pet do I have?"
            must: [cat]
            must_not: [car]

recall@k is the share of required memories that came back; precision@k is the share of returned memories that were
required. A memory that comes back although it must not is a leak, which fails whatever the baseline says. `must` and
`must_not` name memories, or quote part of the text that the summariser is expected to produce.
"""

import os
import tempfile
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec
import yaml

from recollect.errors import Refused
from recollect.message import Message
from recollect.recall.embedding import (
    Embedder,
    HashingEmbedder,
    OpenAIEmbedder,
    SentenceTransformerEmbedder,
)
from recollect.recall.memory import Hit
from recollect.recall.opening import open_recall
from recollect.recall.recall import Recall
from recollect.regular_files import read_file

SAMPLE = Path(str(files("recollect.recall").joinpath("sample_cases.yaml")))
FORMAT = 1


class Question(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    ask: str
    must: list[str] = []
    must_not: list[str] = []


class Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    questions: list[Question]
    memories: dict[str, str] = {}
    messages: list[str] = []
    others: dict[str, str] = {}
    """Memories of another user, which must never turn up."""


class EvaluationSuite(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    cases: list[Case]
    k: int = 3
    score_min: float = 0.1
    embedder: str = "hashing"


class CaseAnswer(msgspec.Struct, frozen=True):
    """What one question measured."""

    case: str
    ask: str
    recall: float
    precision: float
    missing: list[str]
    leaked: list[str]


class Measured(msgspec.Struct, frozen=True):
    embedder: str
    kind: str
    k: int
    score_min: float
    recall: float
    precision: float
    answers: list[CaseAnswer]
    format: int = FORMAT

    @property
    def ok(self) -> bool:
        return not any(answer.leaked for answer in self.answers)


def load_cases(path: Path) -> EvaluationSuite:
    try:
        suite = msgspec.convert(yaml.safe_load(read_file(path).decode()), EvaluationSuite)
    except FileNotFoundError:
        raise Refused(f"{path}: no such file of cases") from None
    except OSError as error:
        raise Refused(f"{path}: {error.strerror or error}") from None
    except (yaml.YAMLError, msgspec.ValidationError, ValueError, RecursionError) as error:
        raise Refused(f"{path}: not a file of cases: {error}") from error
    for case in suite.cases:
        if not case.memories and not case.messages:
            raise Refused(f"{path}: case {case.name!r} has neither memories nor messages")
        if not case.questions:
            raise Refused(f"{path}: case {case.name!r} asks nothing")
    return suite


def changed(
    suite: EvaluationSuite, *, k: int | None, score_min: float | None, embedder: str | None
) -> EvaluationSuite:
    return EvaluationSuite(
        suite.cases,
        suite.k if k is None else k,
        suite.score_min if score_min is None else score_min,
        embedder or suite.embedder,
    )


def make_embedder(name: str) -> Embedder:
    kind, _, rest = name.partition(":")
    if kind == "hashing":
        return HashingEmbedder(int(rest)) if rest else HashingEmbedder()
    if kind == "openai":
        model, _, dimension = rest.rpartition(":")
        if model and dimension.isdigit():
            return OpenAIEmbedder(model, int(dimension), base_url=os.environ.get("OPENAI_BASE_URL"))
    if kind == "local" and rest:
        return SentenceTransformerEmbedder(rest)
    raise Refused(f"embedder {name!r}: hashing, hashing:DIMENSION, openai:MODEL:DIMENSION or local:MODEL")


async def measure(suite: EvaluationSuite, *, index: str | None = None) -> Measured:
    """Runs each case in its own memory, so that no case depends on another."""
    embedder = make_embedder(suite.embedder)
    answers: list[CaseAnswer] = []
    with tempfile.TemporaryDirectory(prefix="recollect-eval-") as folder:
        for number, case in enumerate(suite.cases):
            url = f"sqlite:///{folder}/case{number}.db?policy=wal-normal"
            opening = open_recall(url, index=index, embedder=embedder)
            opening.scratch = True
            async with opening as recall:
                answers += await _ask_all(recall, case, suite)
    count = max(1, len(answers))
    return Measured(
        embedder.name,
        embedder.kind,
        suite.k,
        suite.score_min,
        round(sum(answer.recall for answer in answers) / count, 4),
        round(sum(answer.precision for answer in answers) / count, 4),
        answers,
    )


async def _ask_all(recall: Recall, case: Case, suite: EvaluationSuite) -> list[CaseAnswer]:
    if case.memories:
        await recall.add("user", list(case.memories.values()))
    for message in case.messages:
        await recall.remember("user", [Message("user", message)])
    if case.others:
        await recall.add("another user", list(case.others.values()))
    await recall.index_ready()
    answers = []
    for question in case.questions:
        found = await recall.search("user", question.ask, suite.k)
        kept = [hit for hit in found.hits if hit.score >= suite.score_min]
        answers.append(_judged(case, question, kept))
    return answers


def _judged(case: Case, question: Question, hits: list[Hit]) -> CaseAnswer:
    texts = [hit.memory.text for hit in hits]
    wanted = {name: case.memories.get(name, name) for name in question.must}
    missing = [name for name, text in wanted.items() if not _among(text, texts)]
    unwanted = {name: case.memories.get(name) or case.others.get(name) or name for name in question.must_not}
    leaked = [name for name, text in unwanted.items() if _among(text, texts)]
    leaked += [name for name, text in case.others.items() if name not in unwanted and text in texts]
    right = sum(any(text in found for text in wanted.values()) for found in texts)
    recall = 1.0 if not wanted else 1 - len(missing) / len(wanted)
    precision = 1.0 if not texts else right / len(texts)
    return CaseAnswer(case.name, question.ask, round(recall, 4), round(precision, 4), missing, leaked)


def _among(text: str, texts: list[str]) -> bool:
    return any(text in found for found in texts)


# ---- the baseline


def save(measured: Measured, path: Path) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(measured), indent=2) + b"\n")


def load(path: Path) -> Measured:
    try:
        return msgspec.json.decode(read_file(path), type=Measured)
    except FileNotFoundError:
        raise Refused(f"{path}: no baseline yet; make one with --save") from None
    except OSError as error:
        raise Refused(f"{path}: {error.strerror or error}") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(f"{path}: not a baseline: {error}") from error


def compare(measured: Measured, baseline: Measured, tolerance: float) -> list[str]:
    """What got worse, in words. A question that is not in the baseline is new, not worse."""
    regressions = []
    for name in ("recall", "precision"):
        now, before = getattr(measured, name), getattr(baseline, name)
        if now < before - tolerance:
            regressions.append(f"{name}@{measured.k} fell from {before:.3f} to {now:.3f}")
    known = {(answer.case, answer.ask): answer for answer in baseline.answers}
    for answer in measured.answers:
        before_answer = known.get((answer.case, answer.ask))
        if before_answer is not None and answer.recall < before_answer.recall - tolerance:
            lost = sorted(set(answer.missing) - set(before_answer.missing))
            regressions.append(f"{answer.case}: {answer.ask!r} no longer finds {', '.join(lost)}")
    return regressions


# ---- output


def as_json(measured: Measured, regressions: list[str]) -> str:
    content: dict[str, Any] = {**msgspec.to_builtins(measured), "regressions": regressions, "ok": measured.ok}
    return msgspec.json.format(msgspec.json.encode(content), indent=2).decode()


def as_text(measured: Measured, regressions: list[str]) -> str:
    lines = [
        f"{measured.embedder} ({measured.kind}), k {measured.k}, threshold {measured.score_min:g}",
        f"recall@{measured.k} {measured.recall:.3f}   precision@{measured.k} {measured.precision:.3f}   "
        f"{len(measured.answers)} questions",
    ]
    for answer in measured.answers:
        if answer.missing:
            lines.append(
                f"  missing  {answer.case}: {answer.ask!r} does not find {', '.join(answer.missing)}"
            )
        if answer.leaked:
            lines.append(f"  leaked   {answer.case}: {answer.ask!r} must not find {', '.join(answer.leaked)}")
    lines += [f"  regression  {text}" for text in regressions]
    return "\n".join(lines)
