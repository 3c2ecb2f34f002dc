"""The HTTP server: the application, its protocol on the socket, and its OpenAPI document.

Imports of its package: ``admin``, ``admin.doctor``, ``admin.events``, ``http``, ``metrics``,
``produce``, ``read``, ``routing``, ``subscriptions``, ``web_console``.
"""
