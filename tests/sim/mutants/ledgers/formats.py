"""Wrong formats of batches, entries, lists and frames, which tests of each format detect."""

from __future__ import annotations

from tests.sim.mutants.mutation import Edit, Mutant

BATCH = "fencelog.ledgers.record_batch.format"
CHECK = "fencelog.ledgers.record_batch.check"
HEADER = "fencelog.ledgers.format.entry_header"
LIST = "fencelog.ledgers.format.entry_list"

_VERIFIED = "entries are verified from end to end"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "event-time-0-is-none",
        "a message is read as it was appended",
        "A batch whose event times are all 0 has none.",
        (
            Edit(
                BATCH,
                "encode_batch",
                "any(time is not None for time in times)",
                "any(times)",
            ),
        ),
    ),
    Mutant(
        "empty-key-is-none",
        "a message is read as it was appended",
        "A batch whose keys are all empty has none.",
        (Edit(BATCH, "encode_batch", "any(key is not None for key in keys)", "any(keys)"),),
    ),
    Mutant(
        "header-names-of-any-size",
        "PROTOCOL.md: limits",
        "The names of a message's headers do not count for the limit of their bytes.",
        (
            Edit(
                CHECK,
                "_check_headers",
                "names[bound] + values[bound] for bound in lists",
                "values[bound] for bound in lists",
            ),
        ),
    ),
    Mutant(
        "event-times-of-other-messages",
        "record batches are checked before they are trusted",
        "A batch may have more event times than messages.",
        (
            Edit(
                CHECK,
                "_check_event_times",
                "len(view.event_times) != 8 * view.count",
                "len(view.event_times) < 8 * view.count",
            ),
        ),
    ),
    Mutant(
        "entry-of-another-number",
        _VERIFIED,
        "An entry whose header names another entry is passed on.",
        (
            Edit(
                "fencelog.ledgers.format.run",
                "verify_entries",
                "            or number != entry_id\n",
                "",
            ),
        ),
    ),
    Mutant(
        "unknown-contents-are-zeros",
        "SEMANTICS.md: Exactly once",
        "A repeated append is refused as another one where the log does not know its contents.",
        (
            Edit(
                HEADER,
                "_key_range",
                'contents if any(contents) else b""',
                "contents",
            ),
        ),
    ),
    Mutant(
        "ranges-beyond-the-messages",
        "SEMANTICS.md: Exactly once",
        "The sequences of an entry may be those of more messages than it has.",
        (
            Edit(
                HEADER,
                "read_ranges",
                "sequences in ranges) != header.count",
                "sequences in ranges) < header.count",
            ),
        ),
    ),
    Mutant(
        "link-to-the-entry-behind",
        "SEMANTICS.md: Exactly once",
        "A takeover passes over the last entry before another one that names producers.",
        (Edit(HEADER, "read_entry_header", "ranges, link - 1)", "ranges, link)"),),
    ),
    Mutant(
        "value-without-its-checksum",
        _VERIFIED,
        "The value of a single message is passed on though the batch is damaged.",
        (
            Edit(
                BATCH,
                "value_of_one",
                "        or crc32c(memoryview(data)[12:], _START_OF_ONE_CRC) != checksum\n",
                "",
            ),
        ),
    ),
    Mutant(
        "limbo-lost-on-the-way",
        "unknown is not no",
        "The list of a bookie in limbo is taken for complete.",
        (Edit(LIST, "EntryList.decode", "bool(flags & _IN_LIMBO)", "False"),),
    ),
    Mutant(
        "missing-at-the-end-not-seen",
        "MAINTENANCE.md: the auditor",
        "What a bookie lacks behind its last entry is not missing.",
        (
            Edit(
                "fencelog.ledgers.format.availability",
                "Availability.missing_from",
                "            if following <= last:\n                yield following, last\n",
                "",
            ),
        ),
    ),
    Mutant(
        "whole-frame-of-any-size",
        "PROTOCOL.md: limits",
        "A frame that arrives at once may be larger than the connection allows.",
        (
            Edit(
                "fencelog.ledgers.rpc.wire",
                "FrameReader.feed",
                "8 <= length <= self._max_bytes:  # one frame: mostly",
                "8 <= length:",
            ),
        ),
    ),
    Mutant(
        "places-apart-are-adjacent",
        "PROTOCOL.md: reads from files",
        "Runs of a file that do not adjoin are taken for the ones that were named.",
        (
            Edit(
                "fencelog.ledgers.rpc.places",
                "end_of_runs",
                "        and [header.first_entry_id for header in headers[1:]] == ends[:-1]\n",
                "",
            ),
        ),
    ),
)
