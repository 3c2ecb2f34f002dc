"""The traces of a process: sampling options, and the export by OpenTelemetry, an extra.

Imports of its package: ``http``.
"""
