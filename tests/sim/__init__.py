"""The simulator: real code on simulated machines, networks, disks and clocks, judged by oracles."""
