"""The panel: Qt in PythonQt's style over the library, the scene and the worker process."""
