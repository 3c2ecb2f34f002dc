"""The oracle of cursors in histories of administration: what each has to see, and has lost."""
