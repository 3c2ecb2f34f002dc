"""Java as the tests start it."""

JVM_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData"
"""Quick to start rather than quick to run."""
