"""MemorizationIndex: has a generative MRI model copied its training patients?"""

from .version import __version__

__all__ = ["__version__"]
