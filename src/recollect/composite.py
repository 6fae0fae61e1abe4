"""Ids made of several parts. All of ours are made here, so that two different lists of parts never give the same id.

Parts are any text, and others choose them: a turn called ``T/reply`` must not be the reply to turn ``T``. So the
separator is escaped inside the parts, which makes the id reversible. Parts without the separator and without ``~`` are
left as they are, so that ids already stored stay the same.
"""


def composite_id(*parts: str, separator: str = "/") -> str:
    """One id for these parts; other parts, or another number of them, never give the same one."""
    return separator.join([part.replace("~", "~0").replace(separator, "~1") for part in parts])


def parts_of(made: str, separator: str = "/") -> list[str]:
    """The parts that `composite_id` made this id of."""
    return [part.replace("~1", separator).replace("~0", "~") for part in made.split(separator)]


def conversation_id(user: str, session: str) -> str:
    """A user's session as one id for a `MemoryStore`; the length in front keeps any two pairs apart.

    Older than `composite_id`; kept because people's conversations are stored under these ids.
    """
    return f"{len(user)}:{user}:{session}"
