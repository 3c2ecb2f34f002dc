"""One storage node: it takes runs of entries, makes them durable, and returns them to readers.

``bookie/STORAGE.md`` draws the formats and says why each fsync is where it is;
``bookie/MAINTENANCE.md`` describes the background work.
"""
