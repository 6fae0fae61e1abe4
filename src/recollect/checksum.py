"""The checksum at the end of a record: it tells bytes that changed on a disk from what was said.

Engines return whatever is in their files. Text with a flipped bit is still text, so only a checksum made before the
engine got the record can tell. A record is JSON, and JSON may end in white space, so the checksum is 32 blanks and
tabs. Every tool and every release still reads the record as before. A release without checksums that rewrites a record
drops the white space, so it never leaves a stale checksum behind.

The blanks and tabs are chosen so that the CRC-32 of the whole record is 0. So is that of many records one after the
other, and it is not if any bit among them has changed: one call checks a history. A CRC is linear: a tab in place of a
blank flips the same bits of it whatever the record is, and for the 32 places these are linearly independent, so every
record has exactly one such end.

A record without a checksum is from an older release or another tool, and is believed. One changed bit cannot turn a
record with a checksum into one without: what is no longer white space is no longer JSON. Records may also end with the
first form of the checksum, 24 characters that spell the CRC-32 of what is before them (`_spelt`).
"""

from functools import reduce
from itertools import islice, product
from operator import xor
from zlib import crc32

CHECKSUM_BYTES = 32
_SPELT_BYTES = 24


def checksum(body: bytes) -> bytes:
    """What follows the body of a record."""
    crc = crc32(body)
    tabs = _TABS[0][crc >> 24] ^ _TABS[1][crc >> 16 & 255] ^ _TABS[2][crc >> 8 & 255] ^ _TABS[3][crc & 255]
    return b"%b%b%b%b" % (
        _WITH_TABS[tabs >> 24],
        _WITH_TABS[tabs >> 16 & 255],
        _WITH_TABS[tabs >> 8 & 255],
        _WITH_TABS[tabs & 255],
    )


def has_changed(record: bytes) -> bool:
    """Whether the record has a checksum that does not match. Any white space of that length counts as one."""
    if record[-CHECKSUM_BYTES:].isspace():
        return crc32(record) != 0
    tail = record[-_SPELT_BYTES:]
    return tail.isspace() and tail != _spelt(record[:-_SPELT_BYTES])


def is_checked(record: bytes) -> bool:
    """Whether the record has a checksum."""
    return record[-_SPELT_BYTES:].isspace()


def all_intact(joined: bytes) -> bool:
    """Whether these records, one after the other, all have their checksums."""
    return crc32(joined) == 0


def _spelt(body: bytes) -> bytes:
    return b"".join(_OF_BYTE[byte] for byte in crc32(body).to_bytes(4, "big"))


_OF_BYTE = [b"".join(kinds) for kinds in islice(product((b" ", b"\t", b"\n"), repeat=6), 256)]


# ---- which places get a tab, for every CRC of a body

_WITH_TABS = [b"".join(kinds) for kinds in product((b" ", b"\t"), repeat=8)]
"""For each byte of the number that says where the tabs are; its highest bit is the first place."""


def _solved() -> list[int]:
    """The places of the tabs that flip each single bit of a CRC: Gaussian elimination over bits."""
    blank = crc32(b" " * CHECKSUM_BYTES)
    rows = [
        (crc32(b" " * place + b"\t" + b" " * (CHECKSUM_BYTES - 1 - place)) ^ blank, 1 << 31 - place)
        for place in range(CHECKSUM_BYTES)
    ]
    for bit in range(32):
        pivot = next(place for place in range(bit, 32) if rows[place][0] >> bit & 1)
        rows[bit], rows[pivot] = rows[pivot], rows[bit]
        flips, tabs = rows[bit]
        rows = [
            (other ^ flips, places ^ tabs) if place != bit and other >> bit & 1 else (other, places)
            for place, (other, places) in enumerate(rows)
        ]
    return [tabs for _, tabs in rows]


def _tables() -> list[list[int]]:
    """The tabs for a CRC are those for its four bytes together, and the first byte's have those for a CRC of 0."""
    solved = _solved()

    def tabs(crc: int) -> int:
        wrong = crc32(b" " * CHECKSUM_BYTES, crc)
        return reduce(xor, (solved[bit] for bit in range(32) if wrong >> bit & 1), 0)

    none = tabs(0)
    of_bit = [tabs(1 << bit) ^ none for bit in range(32)]
    tables = []
    for shift in (24, 16, 8, 0):
        table = [none if shift == 24 else 0]
        for bit in range(shift, shift + 8):
            table += [entry ^ of_bit[bit] for entry in table]
        tables.append(table)
    return tables


_TABS = _tables()
