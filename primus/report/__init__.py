"""The report of runs: one page of HTML, made of strings by functions that read and write nothing."""
