"""The tests. ``tests/TESTING.md`` says what each folder is for."""
