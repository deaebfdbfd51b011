"""The steps of an audit, each a process of its own.

Torch makes a million objects that live as long as the process. To look for garbage among them while it is
imported, and to take them apart at the end, would take a quarter of a small cell's time.
"""

import atexit
import gc

gc.set_threshold(200_000, 50, 50)
atexit.register(gc.freeze)
