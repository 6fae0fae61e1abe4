"""Facts by rules: what the offline stand-in understands of a message. English, first person, a few kinds of sentence.

It stands in for a language model but does not replace one: what it does not recognise stays in the conversation and
does not become a fact. It never guesses.
"""

import re

FACT_LENGTH_MAX = 500

_SENTENCES = re.compile(r"[^.!?\n]+(?:\.(?=\w)[^.!?\n]*)*[.!?]*")
_ABBREVIATIONS = re.compile(r"\b(St|Mt|Dr|Mr|Mrs|Ms|Prof|Jr|Sr)\.(?=\s)")
_DOT = "\u2024"
_END = r"(?=$|[,;.!]|\s+(?:and|but|so)\s+(?:i|my|we)\b)"


def _rule(pattern: str, fact: str) -> tuple[re.Pattern[str], str]:
    return re.compile(pattern.replace("$END", _END), re.IGNORECASE), fact


# Tried in order on every sentence; `{0}` is what the pattern's group matched, as the user wrote it.
_RULES = (
    _rule(r"\bmy name(?: is|'s|’s)\s+(.+?)$END", "The user's name is {0}."),
    _rule(r"\b(?:call me|i(?:'m| am) called|people call me)\s+(.+?)$END", "The user's name is {0}."),
    _rule(r"\bi live in\s+(.+?)$END", "The user lives in {0}."),
    _rule(r"\bi(?:'m| am) from\s+(.+?)$END", "The user is from {0}."),
    _rule(r"\bi work (?:as|at|for|in)\s+(.+?)$END", "The user's work: {0}."),
    _rule(r"\bi(?:'m| am) (?:allergic|intolerant) to\s+(.+?)$END", "The user is allergic to {0}."),
    _rule(r"\bi(?:'m| am)\s+(\d{1,3}) years old\b", "The user is {0} years old."),
    _rule(r"\bi (?:do not|don't|don’t) like\s+(.+?)$END", "The user does not like {0}."),
    _rule(r"\bi (?:hate|dislike)\s+(.+?)$END", "The user does not like {0}."),
    _rule(r"\bi (?:really )?(?:like|love|enjoy)\s+(.+?)$END", "The user likes {0}."),
    _rule(r"\bi prefer\s+(.+?)$END", "The user prefers {0}."),
    _rule(r"\bi have\s+((?:an?|two|three|four|\d+)\s+.+?)$END", "The user has {0}."),
    _rule(r"\bi(?:'m| am) (an? .+?)$END", "The user is {0}."),
    _rule(r"\bremember(?: that|:)\s+(.+)", "The user asked to remember: {0}."),
)
_MY = re.compile(
    r"\bmy ((?:favou?rite )?[\w'’-]+(?: [\w'’-]+){0,2}?)\s+(is|are|was|were)\s+(.+?)" + _END, re.IGNORECASE
)


def facts_in(text: str) -> list[str]:
    """The facts that a user's message states about the user, in order, each once."""
    found: dict[str, None] = {}
    # The dot of an abbreviation does not end a sentence, so another character stands in for it here.
    masked = _ABBREVIATIONS.sub(lambda match: f"{match[1]}{_DOT}", text)
    for sentence in _SENTENCES.findall(masked):
        stripped = sentence.strip()
        if not stripped or stripped.endswith("?"):
            continue
        for fact in _facts_of(stripped):
            found[fact.replace(_DOT, ".")[:FACT_LENGTH_MAX]] = None
    return list(found)


def _facts_of(sentence: str) -> list[str]:
    facts = []
    for pattern, fact in _RULES:
        facts += [fact.format(_plain(match[1])) for match in pattern.finditer(sentence) if _plain(match[1])]
    named = {match.span() for pattern, _ in _RULES[:1] for match in pattern.finditer(sentence)}
    for match in _MY.finditer(sentence):
        if match.span() not in named and match[1].lower() != "name" and _plain(match[3]):
            facts.append(f"The user's {match[1]} {match[2].lower()} {_plain(match[3])}.")
    return facts


def _plain(part: str) -> str:
    return " ".join(part.split()).rstrip(".!,;")
