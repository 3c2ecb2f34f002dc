"""The background tasks: garbage collection, repair, scrubbing, watching full disks.

Imports of its package: ``config``, ``disk``, ``engine``, ``gc``, ``repair``.
"""
