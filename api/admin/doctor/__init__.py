"""The doctor: what is wrong with a cluster, in words. Observations are gathered with timeouts, and
findings follow from them alone.

Imports of its package: none.
"""
