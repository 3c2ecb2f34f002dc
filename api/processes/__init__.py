"""The processes of the service: standalone, bookie, broker and autorecovery.

Imports of its package: ``http``, ``metrics``, ``processes.traces``, ``routing``, ``server``.
"""
