"""Stands in for ``slicer.parameterNodeWrapper``: typed attributes over a parameter node.

Follows Slicer's user documentation ("Parameter nodes"): a class decorated with
``@parameterNodeWrapper`` wraps a vtkMRMLScriptedModuleNode; each annotated member is kept in the
node, checked when written, and can be bound to the widget that carries its name in the dynamic
property ``SlicerParameterName``. Supported here: int, float, str, bool, enums (by name), paths,
MRML nodes, lists of these, and Optional of these. Other types raise, so that a gap is seen.
"""

# Names are Slicer's and Qt's.
# ruff: noqa: N802, N815

from __future__ import annotations

import enum
import pathlib
import types
import typing
from collections.abc import Callable, Iterable, Iterator, MutableSequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import slicer
import slicer.util
import vtk

from slicer_host.ctk_module import ctk
from slicer_host.qt_module import qt

PARAMETER_PROPERTY = "SlicerParameterName"
_RESERVED = (
    "allParameters", "default", "isCached", "dataType", "getValue", "setValue", "connectGui",
    "connectParametersToGui", "disconnectGui", "StartModify", "EndModify", "AddObserver",
    "RemoveObserver", "Modified", "parameterNode",
)  # fmt: skip


# Annotations


class Default:
    """The value of a parameter that was never set."""

    def __init__(self, value: Any = None, *, generator: Callable[[], Any] | None = None) -> None:
        self._value = value
        self._generator = generator

    @property
    def value(self) -> Any:
        return self._generator() if self._generator else self._value


class Validator:
    """Refuses values by raising ValueError."""

    def validate(self, value: Any) -> None:
        raise NotImplementedError


class WithinRange(Validator):
    def __init__(self, minimum: float, maximum: float) -> None:
        self.minimum, self.maximum = minimum, maximum

    def validate(self, value: Any) -> None:
        if not self.minimum <= value <= self.maximum:
            raise ValueError(f"{value} is not within [{self.minimum}, {self.maximum}]")


class Minimum(Validator):
    def __init__(self, minimum: float) -> None:
        self.minimum = minimum

    def validate(self, value: Any) -> None:
        if value < self.minimum:
            raise ValueError(f"{value} is less than {self.minimum}")


class Maximum(Validator):
    def __init__(self, maximum: float) -> None:
        self.maximum = maximum

    def validate(self, value: Any) -> None:
        if value > self.maximum:
            raise ValueError(f"{value} is greater than {self.maximum}")


class Choice(Validator):
    def __init__(self, choices: Iterable[Any]) -> None:
        self.choices = list(choices)

    def validate(self, value: Any) -> None:
        if value not in self.choices:
            raise ValueError(f"{value!r} is none of {self.choices}")


class Exclude(Validator):
    def __init__(self, excluded: Iterable[Any]) -> None:
        self.excluded = list(excluded)

    def validate(self, value: Any) -> None:
        if value in self.excluded:
            raise ValueError(f"{value!r} is excluded")


@dataclass
class Decimals:
    value: int


@dataclass
class SingleStep:
    value: float


# How a type is kept in the node


class _Kept:
    """Writes, reads and removes values of one type; texts by default."""

    types: tuple[type, ...] = ()
    default: Any = None

    def check(self, value: Any) -> None:
        if not isinstance(value, self.types):
            names = " or ".join(t.__name__ for t in self.types)
            kind = ValueError if value is None else TypeError
            raise kind(f"{value!r} is no {names}")

    def has(self, node: Any, name: str) -> bool:
        return bool(node.HasParameter(name))

    def write(self, node: Any, name: str, value: Any) -> None:
        node.SetParameter(name, str(value))

    def read(self, node: Any, name: str) -> Any:
        return self.types[0](node.GetParameter(name))

    def remove(self, node: Any, name: str) -> None:
        node.UnsetParameter(name)


class _Number(_Kept):
    default = 0

    def __init__(self, kind: type) -> None:
        self.types = (kind, int) if kind is float else (kind,)


class _Text(_Kept):
    types, default = (str,), ""


class _Flag(_Kept):
    types, default = (bool,), False

    def read(self, node: Any, name: str) -> bool:
        return node.GetParameter(name) == "True"


class _Path(_Kept):
    def __init__(self, kind: type) -> None:
        self.types, self.default = (kind,), kind()


class _Enum(_Kept):
    def __init__(self, kind: type[enum.Enum]) -> None:
        self.types, self.default = (kind,), next(iter(kind))
        self.kind = kind

    def write(self, node: Any, name: str, value: enum.Enum) -> None:
        node.SetParameter(name, value.name)

    def read(self, node: Any, name: str) -> enum.Enum:
        key = node.GetParameter(name)
        if key not in self.kind.__members__:
            raise ValueError(f"the scene says {key!r}, which is no name in {self.kind!r}")
        return self.kind[key]


class _Node(_Kept):
    def __init__(self, kinds: tuple[type, ...]) -> None:
        self.types = kinds

    def check(self, value: Any) -> None:
        if value is not None:
            super().check(value)

    def write(self, node: Any, name: str, value: Any) -> None:
        node.SetParameter(name, "")
        node.SetNodeReferenceID(name, value.GetID() if value is not None else None)

    def read(self, node: Any, name: str) -> Any:
        return node.GetNodeReference(name)

    def remove(self, node: Any, name: str) -> None:
        node.UnsetParameter(name)
        node.RemoveNodeReferenceIDs(name)


class _Optional(_Kept):
    def __init__(self, inner: _Kept) -> None:
        self.inner = inner

    def check(self, value: Any) -> None:
        if value is not None:
            self.inner.check(value)

    def has(self, node: Any, name: str) -> bool:
        return node.HasParameter(f"{name}.none") or self.inner.has(node, name)

    def write(self, node: Any, name: str, value: Any) -> None:
        self.remove(node, name)
        if value is None:
            node.SetParameter(f"{name}.none", "")
        else:
            self.inner.write(node, name, value)

    def read(self, node: Any, name: str) -> Any:
        return self.inner.read(node, name) if self.inner.has(node, name) else None

    def remove(self, node: Any, name: str) -> None:
        node.UnsetParameter(f"{name}.none")
        self.inner.remove(node, name)


class ObservedList(MutableSequence):
    """A list that writes itself back to the node when it is changed."""

    def __init__(self, kept: _List, node: Any, name: str, values: list[Any]) -> None:
        self._kept, self._node, self._name, self._values = kept, node, name, values

    def _save(self) -> None:
        for value in self._values:
            self._kept.inner.check(value)
        self._kept.write(self._node, self._name, self._values)

    def __getitem__(self, index: Any) -> Any:
        return self._values[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        self._values[index] = value
        self._save()

    def __delitem__(self, index: Any) -> None:
        del self._values[index]
        self._save()

    def __len__(self) -> int:
        return len(self._values)

    def insert(self, index: int, value: Any) -> None:
        self._values.insert(index, value)
        self._save()

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, Iterable) else NotImplemented

    def __repr__(self) -> str:
        return f"ObservedList({self._values})"


class _List(_Kept):
    def __init__(self, inner: _Kept) -> None:
        self.inner = inner
        self.default = []

    def check(self, value: Any) -> None:
        for each in value:
            self.inner.check(each)

    def has(self, node: Any, name: str) -> bool:
        return bool(node.HasParameter(f"{name}.len"))

    def _length(self, node: Any, name: str) -> int:
        return int(node.GetParameter(f"{name}.len") or 0)

    def write(self, node: Any, name: str, value: Any) -> None:
        values = list(value)
        with slicer.util.NodeModify(node):
            before = self._length(node, name)
            for index, each in enumerate(values):
                self.inner.write(node, f"{name}.{index}", each)
            node.SetParameter(f"{name}.len", str(len(values)))
            for index in range(len(values), before):
                self.inner.remove(node, f"{name}.{index}")

    def read(self, node: Any, name: str) -> ObservedList:
        length = self._length(node, name)
        values = [self.inner.read(node, f"{name}.{index}") for index in range(length)]
        return ObservedList(self, node, name, values)

    def remove(self, node: Any, name: str) -> None:
        for index in range(self._length(node, name)):
            self.inner.remove(node, f"{name}.{index}")
        node.UnsetParameter(f"{name}.len")


def _node_types(kind: Any) -> tuple[type, ...]:
    members = _union_members(kind) or (kind,)
    found = tuple(m for m in members if isinstance(m, type) and m is not type(None))
    is_nodes = found and all(issubclass(member, slicer.vtkMRMLNode) for member in found)
    return found if is_nodes else ()


def _union_members(kind: Any) -> tuple[Any, ...]:
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return typing.get_args(kind)
    return ()


def _keeping(kind: Any) -> _Kept:
    members = _union_members(kind)
    if _node_types(kind):
        return _Node(_node_types(kind))
    if members:
        rest = [member for member in members if member is not type(None)]
        if len(rest) == 1 and len(members) == 2:
            return _Optional(_keeping(rest[0]))
    if typing.get_origin(kind) is list:
        return _List(_keeping(_split(typing.get_args(kind)[0])[0]))
    if kind is bool:
        return _Flag()
    if kind in (int, float):
        return _Number(kind)
    if kind is str:
        return _Text()
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return _Enum(kind)
    if isinstance(kind, type) and issubclass(kind, pathlib.PurePath):
        return _Path(kind)
    raise NotImplementedError(f"the stand-in keeps no parameter of type {kind}")


def _split(annotated: Any) -> tuple[Any, tuple[Any, ...]]:
    if typing.get_origin(annotated) is typing.Annotated:
        kind, *annotations = typing.get_args(annotated)
        return kind, tuple(annotations)
    return annotated, ()


@dataclass
class _Parameter:
    name: str
    kind: Any
    annotations: tuple[Any, ...]
    kept: _Kept
    default: Default

    def write(self, node: Any, value: Any) -> None:
        self.kept.check(value)
        for annotation in self.annotations:
            if isinstance(annotation, Validator):
                annotation.validate(value)
        with slicer.util.NodeModify(node):
            self.kept.write(node, self.name, value)

    def read(self, node: Any) -> Any:
        if not self.kept.has(node, self.name):
            self.kept.write(node, self.name, self.default.value)
        return self.kept.read(node, self.name)

    def annotation(self, kind: type) -> Any:
        return next((a for a in self.annotations if isinstance(a, kind)), None)


# Binding to widgets


class _Binding:
    """One widget bound to one parameter.

    Which pairs there are is Slicer's list; like there, a derived widget class is not taken.
    """

    def __init__(self, widget: Any, parameter: _Parameter) -> None:
        self.widget, self.parameter = widget, parameter
        found = self._find(widget, parameter)
        if found is None:
            raise RuntimeError(
                f"Unable to create GUI connector from datatype '{parameter.kind}' to widget type "
                f"'{type(widget)}'."
            )
        self.signal, self.read, self.write = found
        self._slot: Callable[..., None] | None = None

    def observe(self, changed: Callable[[], None]) -> None:
        self._slot = lambda *_: changed()
        if self.signal is not None:
            self.signal.connect(self._slot)

    def release(self) -> None:
        if self._slot is not None and self.signal is not None:
            self.signal.disconnect(self._slot)
        self._slot = None

    def _find(self, widget: Any, parameter: _Parameter) -> Any:
        kind, cls = parameter.kind, type(widget)
        if kind is bool and cls in (qt.QCheckBox, ctk.ctkCheckBox):
            return self._attribute("toggled", "checked")
        if kind is bool and cls in (qt.QPushButton, ctk.ctkCheckablePushButton):
            widget.checkable = True
            return self._attribute("toggled", "checked")
        if kind is int and cls in (qt.QSlider, qt.QSpinBox):
            self._set_range(-(2**31), 2**31 - 1, must_be_bounded=cls is qt.QSlider)
            return self._attribute("valueChanged", "value")
        sliders = (ctk.ctkSliderWidget, slicer.qMRMLSliderWidget)
        boxes = (qt.QDoubleSpinBox, ctk.ctkDoubleSpinBox, slicer.qMRMLSpinBox, ctk.ctkDoubleSlider)
        if kind in (int, float) and cls in sliders + boxes:
            decimals = parameter.annotation(Decimals)
            if kind is int and cls is not ctk.ctkDoubleSlider:
                widget.decimals = 0
            elif decimals is not None and cls is not ctk.ctkDoubleSlider:
                widget.decimals = decimals.value
            self._set_range(float("-inf"), float("inf"), must_be_bounded=cls in sliders)
            return self._attribute("valueChanged", "value", kind)
        if cls in (qt.QComboBox, ctk.ctkComboBox):
            return self._choices()
        if kind is str and cls is qt.QLineEdit:
            return self._attribute("textChanged", "text")
        if kind is str and cls is qt.QLabel:
            return None, lambda: widget.text, self._setter("text")
        if kind is str and cls is qt.QTextEdit:
            return widget.textChanged, widget.toPlainText, widget.setPlainText
        if isinstance(kind, type) and issubclass(kind, pathlib.PurePath):
            names = {
                ctk.ctkPathLineEdit: ("currentPathChanged", "currentPath"),
                ctk.ctkDirectoryButton: ("directoryChanged", "directory"),
            }.get(cls)
            if names is not None:
                signal, read, write = self._attribute(*names, kind)
                return signal, read, lambda value: write(str(value))
        if _node_types(kind) and cls is slicer.qMRMLNodeComboBox:
            widget.nodeTypes = [node_type.__name__ for node_type in _node_types(kind)]
            return widget.currentNodeChanged, widget.currentNode, widget.setCurrentNode
        return None

    def _attribute(
        self, signal: str, name: str, convert: Callable[[Any], Any] | None = None
    ) -> Any:
        convert = convert or (lambda value: value)
        return (
            getattr(self.widget, signal),
            lambda: convert(getattr(self.widget, name)),
            self._setter(name),
        )

    def _setter(self, name: str) -> Callable[[Any], None]:
        return lambda value: setattr(self.widget, name, value)

    def _set_range(self, low: float, high: float, *, must_be_bounded: bool) -> None:
        within = self.parameter.annotation(WithinRange)
        minimum, maximum = self.parameter.annotation(Minimum), self.parameter.annotation(Maximum)
        if must_be_bounded and within is None and (minimum is None or maximum is None):
            raise RuntimeError(f"{type(self.widget).__name__} needs a bounded parameter")
        step = self.parameter.annotation(SingleStep)
        if step is not None:
            self.widget.singleStep = step.value
        bounds = (
            within.minimum if within else minimum.minimum if minimum else low,
            within.maximum if within else maximum.maximum if maximum else high,
        )
        self.widget.minimum, self.widget.maximum = bounds

    def _choices(self) -> Any:
        kind, widget = self.parameter.kind, self.widget
        if isinstance(kind, type) and issubclass(kind, enum.Enum):
            label = getattr(kind, "label", lambda member: member.name)
            values, texts = list(kind), [label(member) for member in kind]
        else:
            choice = self.parameter.annotation(Choice)
            if choice is None:
                raise RuntimeError("a combo box needs an enum or the Choice annotation")
            values, texts = choice.choices, [str(value) for value in choice.choices]
        widget.clear()
        widget.addItems(texts)
        return (
            widget.currentIndexChanged,
            lambda: values[widget.currentIndex],
            lambda value: setattr(widget, "currentIndex", values.index(value)),
        )


# The wrapper


class _Wrapper:
    """What the decorator adds to a class."""

    allParameters: typing.ClassVar[dict[str, _Parameter]] = {}

    def __init__(self, node: Any) -> None:
        if node is None:
            raise AssertionError("a parameter node wrapper needs a parameter node")
        self.parameterNode = node
        self._bindings: dict[int, tuple[list[_Binding], int]] = {}
        self._next_tag = 0
        self._updating = False
        for parameter in self.allParameters.values():
            if not parameter.kept.has(node, parameter.name):
                parameter.write(node, parameter.default.value)

    def _parameter(self, name: str) -> _Parameter:
        if name not in self.allParameters:
            names = ", ".join(self.allParameters)
            raise ValueError(f"Cannot find a param with the given name: {name} ({names})")
        return self.allParameters[name]

    def default(self, name: str) -> Default:
        return self._parameter(name).default

    @classmethod
    def dataType(cls, name: str) -> Any:
        return cls.allParameters[name].kind

    def isCached(self, name: str) -> bool:
        self._parameter(name)
        return False

    def getValue(self, name: str) -> Any:
        return self._parameter(name).read(self.parameterNode)

    def setValue(self, name: str, value: Any) -> None:
        self._parameter(name).write(self.parameterNode, value)

    def connectGui(self, gui: Any) -> int:
        """Bind every widget below ``gui`` that names a parameter; returns a tag."""
        widgets = _all_below(gui) if hasattr(gui, "isWidgetType") else list(vars(gui).values())
        named = ((widget.property(PARAMETER_PROPERTY), widget) for widget in widgets)
        return self.connectParametersToGui({name: widget for name, widget in named if name})

    def connectParametersToGui(self, mapping: dict[str, Any]) -> int:
        bindings = [_Binding(widget, self._parameter(name)) for name, widget in mapping.items()]
        tag, self._next_tag = self._next_tag, self._next_tag + 1
        for binding in bindings:
            binding.write(self.getValue(binding.parameter.name))
            binding.observe(lambda binding=binding: self._from_gui(binding))
        observer = self.parameterNode.AddObserver(vtk.vtkCommand.ModifiedEvent, self._to_gui)
        self._bindings[tag] = (bindings, observer)
        return tag

    def disconnectGui(self, tag: int | None) -> None:
        if tag in self._bindings:
            bindings, observer = self._bindings.pop(tag)
            for binding in bindings:
                binding.release()
            self.parameterNode.RemoveObserver(observer)

    def _from_gui(self, binding: _Binding) -> None:
        if not self._updating:
            self.setValue(binding.parameter.name, binding.read())

    def _to_gui(self, *_: Any) -> None:
        if self._updating:
            return
        self._updating = True
        try:
            for bindings, _observer in list(self._bindings.values()):
                for binding in bindings:
                    binding.write(self.getValue(binding.parameter.name))
        finally:
            self._updating = False

    def StartModify(self) -> int:
        return self.parameterNode.StartModify()

    def EndModify(self, was_modified: int) -> None:
        self.parameterNode.EndModify(was_modified)

    def AddObserver(self, event: Any, callback: Any, priority: float = 0.0) -> int:
        return self.parameterNode.AddObserver(event, callback, priority)

    def RemoveObserver(self, tag: int) -> None:
        self.parameterNode.RemoveObserver(tag)

    def Modified(self) -> None:
        self.parameterNode.Modified()


def _all_below(widget: Any) -> Iterator[Any]:
    for child in widget.children():
        if child.isWidgetType():
            yield child
            yield from _all_below(child)


def parameterNodeWrapper(cls: Any = None) -> Any:
    """Class decorator: typed attributes over a parameter node, bindable to widgets."""
    if cls is None:
        return parameterNodeWrapper
    for name in _RESERVED:
        if name in vars(cls):
            raise ValueError(f"Cannot use reserved name '{name}' in a parameterNodeWrapper")
    parameters = {}
    for name, annotated in typing.get_type_hints(cls, include_extras=True).items():
        kind, annotations = _split(annotated)
        kept = _keeping(kind)
        default = next((a for a in annotations if isinstance(a, Default)), Default(kept.default))
        if hasattr(cls, name):
            default = Default(getattr(cls, name))
        parameter = _Parameter(name, kind, annotations, kept, default)
        parameters[name] = parameter
        setattr(cls, name, _member(parameter))
    for name, value in vars(_Wrapper).items():
        if name == "__init__" or not name.startswith("__"):
            setattr(cls, name, value)
    cls.allParameters = parameters
    cls._is_parameter_node_wrapper = True
    return cls


def _member(parameter: _Parameter) -> property:
    return property(
        lambda self: parameter.read(self.parameterNode),
        lambda self, value: parameter.write(self.parameterNode, value),
    )


def isParameterNodeWrapper(candidate: Any) -> bool:
    """Return whether a class or object was made by :func:`parameterNodeWrapper`."""
    return getattr(candidate, "_is_parameter_node_wrapper", False)


module = ModuleType("slicer.parameterNodeWrapper")
for _public in (
    Choice, Decimals, Default, Exclude, Maximum, Minimum, ObservedList, SingleStep, Validator,
    WithinRange, isParameterNodeWrapper, parameterNodeWrapper,
):  # fmt: skip
    setattr(module, _public.__name__, _public)
