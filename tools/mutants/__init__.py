"""``make mutants``: change the source a line at a time, and see which change no test notices (decision 100)."""
