"""Lines and records in and out of the client, as the command line reads and writes them.

Imports of its package: ``client``, ``console``, ``http``, ``routing``.
"""
