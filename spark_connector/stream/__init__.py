"""Topics as streams: the driver's part of a streaming query.

The ``*_core`` modules and ``options`` are pure functions of values; ``service`` asks the service,
``reader`` is what Spark calls. Imports of its package: ``planning``, ``read``.
"""
