"""The checksum at the end of a record: it tells bytes that changed on a disk from what was said.

Engines give back what lies in their files. A flipped bit in a text is still a text, so only a checksum that was made
before the engine had the record can tell. A record is JSON, and JSON may end in white space: the CRC-32 of the record
is written as that, in blanks, tabs and line feeds, six for each of its bytes. So every tool and every release reads the
record as before. A release without checksums that rewrites it leaves the checksum out with the rest of the white
space, and never a stale one.

A record without a checksum is an older one, or another tool's, and is believed. One changed bit cannot turn a record
with a checksum into one without: what is no longer white space is not JSON either.

There is no carriage return in it: Redis's protocol ends lines with CR LF, and strings without one are parsed many at a
time.
"""

from itertools import islice, product
from zlib import crc32

_OF_BYTE = [b"".join(kinds) for kinds in islice(product((b" ", b"\t", b"\n"), repeat=6), 256)]

CHECKSUM_BYTES = 24


def checksum(body: bytes) -> bytes:
    """What follows the body of a record. Any white space of this length at the end of a record is taken for one."""
    crc = crc32(body)
    return b"%b%b%b%b" % (
        _OF_BYTE[crc >> 24],
        _OF_BYTE[crc >> 16 & 255],
        _OF_BYTE[crc >> 8 & 255],
        _OF_BYTE[crc & 255],
    )
