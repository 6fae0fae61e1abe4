"""The checksum at the end of a record: it tells bytes that changed on a disk from what was said.

Engines return whatever is in their files. Text with a flipped bit is still text, so only a checksum made before the
engine got the record can tell. A record is JSON, and JSON may end in white space, so the CRC-32 of the record is
written as blanks, tabs and line feeds, six for each of its bytes. Every tool and every release still reads the record
as before. A release without checksums that rewrites a record drops the white space, so it never leaves a stale
checksum behind.

A record without a checksum is from an older release or another tool, and is believed. One changed bit cannot turn a
record with a checksum into one without: what is no longer white space is no longer JSON.

There is no carriage return in it: Redis's protocol ends lines with CR LF, and strings without one are parsed many at a
time.
"""

from collections.abc import Sequence
from itertools import islice, product
from struct import pack
from zlib import crc32

_OF_BYTE = [b"".join(kinds) for kinds in islice(product((b" ", b"\t", b"\n"), repeat=6), 256)]

CHECKSUM_BYTES = 24


def checksum(body: bytes) -> bytes:
    """What follows the body of a record. Any white space of this length at the end of a record counts as a checksum."""
    crc = crc32(body)
    return b"%b%b%b%b" % (
        _OF_BYTE[crc >> 24],
        _OF_BYTE[crc >> 16 & 255],
        _OF_BYTE[crc >> 8 & 255],
        _OF_BYTE[crc & 255],
    )


def all_intact(records: Sequence[bytes]) -> bool:
    """Whether every record ends with its checksum. In passes over all of them, which cost less than a call for each."""
    tails = b"".join([record[-CHECKSUM_BYTES:] for record in records])
    if (
        len(tails) != CHECKSUM_BYTES * len(records) or not tails.isspace()
    ):  # those of older releases have none
        return False
    sums = map(crc32, [record[:-CHECKSUM_BYTES] for record in records])
    return tails == b"".join(map(_OF_BYTE.__getitem__, pack(f">{len(records)}I", *sums)))
