"""Self-repair: finding copies that are missing or damaged, fetching them, and scrubbing.

Imports of its package: ``disk``, ``engine``, ``format``, ``storage``.
"""
