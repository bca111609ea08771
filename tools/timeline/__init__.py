"""What `./tutorial trace` does: draws what the warps of a kernel did (docs/trace.md).

trace.py reads the file, places.py finds names in the sources, barriers.py finds who ended each wait, bars.py cuts the time
of each warp, and summary.py, picture.py and perfetto.py show it.
"""
