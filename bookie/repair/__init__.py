"""Self-repair: the search for missing or damaged copies, their replacement, and scrubbing.

Imports of its package: ``disk``, ``engine``, ``format``, ``storage``.
"""
