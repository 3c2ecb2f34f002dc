"""One storage node: it takes runs of entries, makes them durable, and gives them back.

``bookie/STORAGE.md`` draws the formats and says why each fsync is where it is;
``bookie/MAINTENANCE.md`` describes what goes on besides requests.
"""
