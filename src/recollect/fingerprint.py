"""What a turn id stands for: a digest of its messages, kept with the id.

A retry is the same turn again; other messages under the same id are another turn, and would be lost silently if
they were mistaken for a retry. The digest tells the two apart in 16 bytes, however large the turn was.

The digest covers what was said: each message's role, content, metadata and fields of a newer release, in order. It
leaves out what a retry cannot be expected to repeat: a message's `id` and `timestamp`, which are made up where the
caller gives none, and the record's version, which the next release raises. The order of keys in a mapping does not
matter.

Digests outlive releases, so the bytes that are digested may never change: tests/golden/fingerprints.json pins them.
"""

import json
from collections.abc import Sequence

import msgspec

from recollect.json_values import Json
from recollect.message import Message

FINGERPRINT_BYTES = 16

_encode_sorted = msgspec.json.Encoder(order="sorted").encode


def fingerprint(messages: Sequence[Message], change: Sequence[Json] = ()) -> bytes:
    """The digest of messages that `recollect.message.encode` has accepted. `change` is the name and arguments of a
    change that is not an append."""
    from hashlib import blake2b  # slow to import, and only turns with an id need it

    digest = blake2b(digest_size=FINGERPRINT_BYTES, person=b"recollect-turn")
    if change:
        digest.update(_sorted_json(list(change)))
    for message in messages:
        digest.update(_sorted_json([message.role, message.content, message.metadata, message.extra]))
    return digest.digest()


def _sorted_json(said: Json) -> bytes:
    try:
        return _encode_sorted(said)
    except UnicodeEncodeError:  # a lone surrogate: only the standard codec writes it
        return json.dumps(said, sort_keys=True, separators=(",", ":")).encode("ascii")
