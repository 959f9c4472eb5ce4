from __future__ import annotations

import types

import pytest

from MemorizationIndexLib.encoders import registry, weights
from MemorizationIndexLib.encoders.encoder import EncoderError
from MemorizationIndexLib.encoders.registry import get_encoder, resolve_encoder


def test_builtin_has_its_own_size_unless_told():
    assert get_encoder("builtin").input_size == 224
    assert get_encoder("builtin", input_size=128).input_size == 128


@pytest.mark.parametrize(("present", "expected"), [(True, "mri-core"), (False, "builtin")])
def test_auto_is_mri_core_where_its_weights_are(monkeypatch, present, expected):
    monkeypatch.setattr(weights, "weights_state", lambda: types.SimpleNamespace(present=present))
    assert resolve_encoder("auto") == expected
    assert resolve_encoder("builtin") == "builtin"
    assert resolve_encoder("some.module:load") == "some.module:load"


def test_auto_without_weights_is_builtin(monkeypatch):
    monkeypatch.setattr(weights, "weights_state", lambda: types.SimpleNamespace(present=False))
    assert get_encoder().name == "builtin"


def test_an_option_that_an_encoder_lacks_is_named():
    with pytest.raises(EncoderError, match="no option pooling, precision"):
        get_encoder("builtin", precision="auto", pooling="rows")
    with pytest.raises(EncoderError, match="of your own has no option pooling"):
        get_encoder("some.module:load", pooling="rows")


@pytest.mark.parametrize("name", ["nonsense", "", "no.such.module:load", "missing.pt", "a/b.py:f"])
def test_an_unknown_encoder_is_refused_in_a_sentence(name):
    with pytest.raises(EncoderError) as caught:
        get_encoder(name)
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)


def test_a_misspelled_encoder_is_told_all_names_and_how_to_give_ones_own():
    with pytest.raises(EncoderError) as caught:
        get_encoder("foo")
    for word in ("no encoder foo", *registry.NAMES, "module:function", "TorchScript", "file.py:"):
        assert word in str(caught.value)


def test_a_device_that_the_builtin_encoder_does_not_use_is_said(recwarn):
    for device in ("auto", "cpu"):
        get_encoder("builtin", device=device)
    assert not recwarn
    for device in ("cuda", "cuda:1", "mps"):
        with pytest.warns(UserWarning, match=f"CPU only: --device {device} changes nothing"):
            get_encoder("builtin", device=device)
    with pytest.raises(EncoderError, match="Unknown device 'gpu'"):
        get_encoder("builtin", device="gpu")


def test_the_names_of_the_help_are_those_of_the_registry():
    assert registry.NAMES == ("auto", "builtin", "mri-core")
