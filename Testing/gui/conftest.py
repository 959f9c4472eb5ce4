from slicer_host.fixtures import host, slicer_app

__all__ = ["host", "slicer_app"]
