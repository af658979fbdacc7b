"""A bound on the memory that a piece of code may take, for tests that nothing of a certain size is
made.
"""

import resource
from contextlib import contextmanager


@contextmanager
def at_most_more(num_bytes):
    """Whatever would make the address space of this process so much larger is a MemoryError, or a
    RuntimeError of torch: nothing is written, nothing is swapped.
    """
    with open("/proc/self/statm") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (now + num_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
