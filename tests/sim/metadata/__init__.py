"""The simulated ZooKeeper: sessions, lagging followers, watches, lost replies."""
