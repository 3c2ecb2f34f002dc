"""The command line. Each command's module imports what it needs when the command runs.

Imports of its package: ``admin``, ``admin.doctor``, ``bench``, ``bench.demo``, ``cli.healing``,
``client``, ``console``, ``drills``, ``drills.bookie``, ``drills.broker``, ``drills.harness``,
``local_cluster``, ``processes``, ``processes.logs``, ``processes.traces``,
``routing``, ``streams``.
"""
