"""Upstream Primus' command line, variables and settings, as ours: text to text, without click, engine or backend."""
