"""The steps of an audit, each a process of its own, and what the rules call.

Torch makes a million objects that live as long as the process, and so does Snakemake of a thousand cells. To
look for garbage among them, and to take them apart at the end, would take a quarter of the time of a small
cell or of such a call. Garbage is still collected, only more rarely.
"""

import atexit
import gc

gc.set_threshold(200_000, 50, 50)
atexit.register(gc.freeze)
