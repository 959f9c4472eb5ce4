"""Slices to features: the built-in encoder, MRI-CORE and a user's own behind one protocol."""

from MemorizationIndexLib.encoders.encoder import Encoder, EncoderError, FlippingEncoder
from MemorizationIndexLib.encoders.registry import get_encoder

__all__ = ["Encoder", "EncoderError", "FlippingEncoder", "get_encoder"]
