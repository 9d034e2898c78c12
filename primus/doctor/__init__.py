"""What may keep a training from running on this machine: checks of one Machine, each a row with its remedy."""
