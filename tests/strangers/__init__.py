"""What strangers may send: anything that the document allows, and anything else."""
