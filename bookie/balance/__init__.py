"""The balance of bookies: after others were added, the fullest bookie's fragments go to the
emptiest.

Imports of its package: ``auditor``, ``replication``.
"""
