"""Stands in for PythonQt's attribute style, over PySide6.

In the application (PythonQt) a Qt property is an attribute: ``button.text``, ``box.checked = 1``;
an attribute that is no property cannot be made up; signals can be connected by their signature,
and a slot gets as many arguments as it takes. PySide6 has methods instead, so that code written
for the one fails in the other. Each class here is a subclass of the PySide6 class with a Python
property for every property of its meta-object.
"""

from __future__ import annotations

import inspect
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from PySide6 import QtCore
from shiboken6 import isValid

# Properties whose getter is virtual: C++ would find the Python property where it looks for an
# override and call it.
_VIRTUAL_GETTERS = frozenset({"sizeHint", "minimumSizeHint", "spacing"})

_wrapped: dict[type, type] = {}
_wrappers: set[type] = set()
_originals: dict[type, type] = {}


_tolerant: list[bool] = []


@contextmanager
def made_up_attributes_ignored() -> Iterator[None]:
    """While a ``.ui`` file loads: PySide6 hangs the children on the root, PythonQt does not."""
    _tolerant.append(True)
    try:
        yield
    finally:
        _tolerant.pop()


class SlotErrors(list):
    """Exceptions that left a slot; the application prints them, a test should fail."""


slot_errors = SlotErrors()


@dataclass
class _Connection:
    sender: Any
    signature: str
    slot: Any
    call: Any


_connections: dict[int, list[_Connection]] = {}


def wrapper_of(cls: type) -> type:
    """Return the PythonQt-style subclass of a PySide6 QObject class."""
    if cls not in _wrapped:
        wrapper = type(cls)(cls.__name__, (cls,), _namespace(cls))
        _wrapped[cls] = wrapper
        _originals[wrapper] = cls
        _wrappers.add(wrapper)
    return _wrapped[cls]


def add_style(cls: type) -> type:
    """Class decorator: give a class written for the stand-in its properties and ``connect``."""
    for name, value in _namespace(cls).items():
        if name not in cls.__dict__ or name in ("connect", "disconnect"):
            setattr(cls, name, value)
    _wrappers.add(cls)
    return cls


def _namespace(cls: type) -> dict[str, Any]:
    namespace: dict[str, Any] = {
        "connect": _connect,
        "disconnect": _disconnect,
        "className": lambda self: self.metaObject().className(),
        "__setattr__": _set_attribute,
        "__module__": "qt",
    }
    if hasattr(cls, "exec"):
        namespace["exec_"] = lambda self, *arguments: self.exec(*arguments)
    if hasattr(cls, "delete"):
        namespace["delete"] = lambda self: self.deleteLater()
    meta = cls.staticMetaObject
    for index in range(meta.propertyCount()):
        name = meta.property(index).name()
        present = inspect.getattr_static(cls, name, None)
        if name in _VIRTUAL_GETTERS or isinstance(present, (property, QtCore.Property)):
            continue
        namespace[name] = _property(name, getattr(cls, name, None))
    namespace["name"] = _property("objectName")
    return namespace


class _QtProperty(property):
    """A property that leaves a static of the same name (``QTimer.singleShot``) on the class."""

    static: Any = None

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None and self.static is not None:
            return self.static
        return super().__get__(instance, owner)


def _property(name: str, static: Any = None) -> property:
    def read(self: Any) -> Any:
        value = QtCore.QObject.property(self, name)
        return bytes(value).decode() if isinstance(value, QtCore.QByteArray) else value

    def write(self: Any, value: Any) -> None:
        meta = self.metaObject()
        index = meta.indexOfProperty(name)
        if index >= 0 and not meta.property(index).isWritable():
            raise AttributeError(f"Property '{name}' of {meta.className()} object is not writable")
        if not QtCore.QObject.setProperty(self, name, value):
            raise ValueError(f"{meta.className()}.{name} does not take {value!r}")

    found = _QtProperty(read, write)
    found.static = static
    return found


def _set_attribute(self: Any, name: str, value: Any) -> None:
    cls = type(self)
    if cls in _wrappers and not name.startswith("_"):
        descriptor = inspect.getattr_static(cls, name, None)
        if not isinstance(descriptor, (property, QtCore.Property)):
            if _tolerant:
                return
            raise AttributeError(
                f"Property '{name}' does not exist on {cls.__name__} object; PythonQt does not "
                "create new attributes on Qt objects"
            )
    # Python lets only the nearest class written in C++ set attributes.
    native = next(base for base in cls.__mro__ if base.__module__.startswith("PySide6"))
    native.__setattr__(self, name, value)


def _signal(sender: Any, signature: str) -> tuple[Any, int | None]:
    name, _, rest = signature.partition("(")
    found = getattr(type(sender), name, None)
    if not isinstance(found, QtCore.Signal):
        raise ValueError(f"{type(sender).__name__} has no signal '{signature}'")
    signal = getattr(sender, name)
    if not rest:
        return signal, None
    parameters = [part for part in rest.rstrip(")").split(",") if part.strip()]
    return signal, len(parameters)


def _connect(self: Any, signature: str, slot: Callable[..., Any]) -> bool:
    """Connect ``signature`` ("clicked(bool)") to a callable, as PythonQt does."""
    if not callable(slot):
        raise TypeError(f"{slot!r} is not callable")
    signal, arity = _signal(self, signature)
    takes = _positional_parameters(slot)

    def call(*arguments: Any) -> None:
        passed = arguments[:arity]
        if takes is not None:
            passed = passed[:takes]
        try:
            slot(*passed)
        except Exception as error:
            slot_errors.append(error)
            sys.excepthook(type(error), error, error.__traceback__)

    signal.connect(call)
    made = _connections.setdefault(id(self), [])
    if not made:
        key = id(self)
        self.destroyed.connect(lambda *_: _connections.pop(key, None))
    made.append(_Connection(weakref.ref(self), signature, slot, call))
    return True


def _disconnect(self: Any, signature: str, slot: Callable[..., Any] | None = None) -> bool:
    """Undo :func:`_connect`; False if there was no such connection."""
    signal, _ = _signal(self, signature)
    made = _connections.get(id(self), [])
    for connection in made:
        if connection.signature == signature and slot in (None, connection.slot):
            signal.disconnect(connection.call)
            made.remove(connection)
            return True
    return False


def forget_connections() -> None:
    """Let go of every slot connected by signature, and with it of what its closure holds."""
    for made in list(_connections.values()):
        for connection in made:
            sender = connection.sender()
            if sender is not None and isValid(sender):
                _signal(sender, connection.signature)[0].disconnect(connection.call)
    _connections.clear()


def _positional_parameters(slot: Callable[..., Any]) -> int | None:
    try:
        parameters = inspect.signature(slot).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return None
    return sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)
