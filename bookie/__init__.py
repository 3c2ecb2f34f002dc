"""One storage node: takes runs of entries, makes them durable, gives them back.

    server.py, local.py   a bookie over TCP; a bookie called directly in the same process
    bookie.py             what a request means; shard.py the engine behind it
    journal.py            group commit; journal_replay.py reads it back after a crash
    write_cache.py        runs that are journaled and not yet in an entry log
    flush.py              write cache -> entry_log.py -> index.py -> checkpoint -> journal trimmed
    records.py            the record format that journal and entry log share
    maintenance.py        garbage collection, full disks, repair, scrubbing
    disk.py               the port to files and threads; disk_posix.py the real one

The formats, and why each fsync is where it is, are drawn in ``bookie/STORAGE.md``; what goes on
besides requests stands in ``bookie/MAINTENANCE.md``; ``ARCHITECTURE.md`` lists all modules.
"""
