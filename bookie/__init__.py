"""One storage node: takes runs of entries, makes them durable, gives them back.

    server/server.py, server/local.py   a bookie over TCP; a bookie called directly in the same process
    engine/bookie.py             what a request means; engine/shard.py the engine behind it
    journal/journal.py            group commit; journal/replay.py reads it back after a crash
    storage/write_cache.py        runs that are journaled and not yet in an entry log
    storage/flush.py              write cache -> storage/entry_log.py -> storage/index.py -> checkpoint -> journal trimmed
    format/records.py            the record format that journal and entry log share
    maintenance/maintenance.py        garbage collection, full disks, repair, scrubbing
    disk/port.py               the port to files and threads; disk/posix.py the real one

The formats, and why each fsync is where it is, are drawn in ``bookie/STORAGE.md``; what goes on
besides requests stands in ``bookie/MAINTENANCE.md``; ``ARCHITECTURE.md`` lists all modules.
"""
