"""Tables and streams into topics: rows as record batches, appended or committed.

``options`` and ``batches`` are pure functions of values; rows wait in ``gathered``. ``appends`` and
``segments`` are the work of a task, ``writer`` is what Spark calls. Imports of its package:
``planning``, ``read``, ``worker``.
"""
