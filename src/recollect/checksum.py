"""The checksum at the end of a record: it tells bytes that changed on a disk from what was said.

Engines give back what lies in their files. A flipped bit in a text is still a text, so only a checksum that was made
before the engine had the record can tell. A record is JSON, and JSON may end in white space: the CRC-32 of the record
is written as that, in four kinds of white space of two bits each, after a line end. So every tool and every release
reads the record as before. A release without checksums that writes it anew leaves the checksum out with the rest of the
white space, and never a stale one.

A record without a checksum is an older one, or another tool's, and is believed. One changed bit cannot turn a record
with a checksum into one without: what is no white space any more is no JSON either.
"""

from zlib import crc32

_KINDS = (b" ", b"\t", b"\n", b"\r")
_OF_BYTE = [
    _KINDS[byte >> 6] + _KINDS[byte >> 4 & 3] + _KINDS[byte >> 2 & 3] + _KINDS[byte & 3]
    for byte in range(256)
]

CHECKSUM_BYTES = 17


def checksum(body: bytes) -> bytes:
    """What follows the body of a record. Any white space of this length at the end of a record is taken for one."""
    crc = crc32(body)
    return b"\n%b%b%b%b" % (
        _OF_BYTE[crc >> 24],
        _OF_BYTE[crc >> 16 & 255],
        _OF_BYTE[crc >> 8 & 255],
        _OF_BYTE[crc & 255],
    )
