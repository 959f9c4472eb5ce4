from slicer_host.fixtures import host

__all__ = ["host"]
