"""The oracles of limits: quotas of backlogs, and producers that are forgotten."""
