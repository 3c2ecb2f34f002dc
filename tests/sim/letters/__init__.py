"""Dead letters and their replay by the service's own code, in histories of calls."""
