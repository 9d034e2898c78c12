"""Tuning of hipBLASLt: which matrix products a training asks for, and which kernel is the fastest for each."""
