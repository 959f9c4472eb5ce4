"""Devices count only after they computed something."""

from __future__ import annotations

import pytest
import torch

from MemorizationIndexLib.encoders import device as device_module
from MemorizationIndexLib.encoders.device import choose_device, probe
from MemorizationIndexLib.encoders.encoder import EncoderError

without_cuda = pytest.mark.skipif(torch.cuda.is_available(), reason="CUDA works here")
without_mps = pytest.mark.skipif(torch.backends.mps.is_available(), reason="MPS works here")


def test_the_cpu_works_and_says_so():
    choice = choose_device("cpu")
    assert choice.device == "cpu"
    assert "ran a test computation" in choice.reason
    assert probe("cpu") is None


@without_cuda
@without_mps
def test_auto_falls_back_to_the_cpu_with_reasons():
    choice = choose_device("auto")
    assert choice.device == "cpu"
    assert "cuda not used: " in choice.reason
    assert "mps not used: " in choice.reason


@without_cuda
@pytest.mark.parametrize("request_", ["cuda", "cuda:1"])
def test_an_explicit_device_that_is_not_there_is_refused(request_: str):
    with pytest.raises(EncoderError, match=f"'{request_}' cannot be used: .*--device auto"):
        choose_device(request_)


@without_mps
def test_mps_that_is_not_there_is_refused():
    with pytest.raises(EncoderError, match="Metal"):
        choose_device("mps")


@without_cuda
def test_a_gpu_that_is_listed_but_fails_its_kernel_does_not_count(monkeypatch):
    # This build cannot run on CUDA: it claims to here and then really fails.
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert choose_device("auto").device == "cpu"
    assert probe("cuda") is not None
    with pytest.raises(EncoderError, match="'cuda' cannot be used"):
        choose_device("cuda")


def test_a_gpu_number_too_high_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(EncoderError, match="no GPU 2, only 2"):
        choose_device("cuda:2")


def test_a_device_with_wrong_numbers_does_not_count(monkeypatch):
    answers = iter([torch.ones(2, 3), torch.ones(2, 3) * 1.5])
    monkeypatch.setattr(device_module, "_computation", lambda image, kernel: next(answers))
    assert probe("cpu") == "its test computation gave wrong numbers"


@pytest.mark.parametrize("request_", ["gpu", "cuda:", "cuda:x", "cpu:0", "", "CUDA"])
def test_an_unknown_device_is_refused(request_: str):
    with pytest.raises(EncoderError, match="Unknown device"):
        choose_device(request_)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_cuda_where_it_works():
    assert choose_device("cuda").device == "cuda:0"
    assert choose_device("auto").device == "cuda:0"
