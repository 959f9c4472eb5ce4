"""The reference of a search: whitened rows under their poses, and what whitened them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from MemorizationIndexLib.index.protocols import Protocol
from MemorizationIndexLib.index.similarity import Block, Layers, Matches, blocks_of, search
from MemorizationIndexLib.index.whitening import Whitener, fit_whitener

Views = Callable[[Layers], Sequence[Layers]]
"""Raw features of queries to the raw features under every pose they are seen in."""


def as_stored(features: Layers) -> Sequence[Layers]:
    """See queries in the stored pose only."""
    return [features]


@dataclass(frozen=True)
class Reference:
    """Whitened reference rows, ready to be searched.

    Attributes:
        rows: Whitened unit rows, float32, one (P, N, D) array per layer: P poses of N slices.
        subjects: Subject code of each slice, non-decreasing, shape (N,).
        subject_count: Number of subjects.
        whiteners: One per layer.
    """

    rows: tuple[NDArray[np.float32], ...]
    subjects: NDArray[np.int64]
    subject_count: int
    whiteners: tuple[Whitener, ...]

    @property
    def slice_count(self) -> int:
        """Number N of reference slices; row r of a match is slice r mod N in pose r div N."""
        return len(self.subjects)

    @classmethod
    def fit(
        cls,
        layers: Sequence[NDArray[np.floating]],
        subjects: NDArray[np.int64],
        subject_count: int,
        protocol: Protocol,
    ) -> Reference:
        """Whiten reference features that fit in memory.

        Args:
            layers: Raw features, one (P, N, D) array per layer.
            subjects: Subject code of each slice, non-decreasing, shape (N,).
            subject_count: Number of subjects.
            protocol: The choice of whitening.
        """
        whiteners = fit_whiteners(layers, protocol)
        rows = tuple(
            np.stack([w.whiten(pose) for pose in layer])
            for w, layer in zip(whiteners, layers, strict=True)
        )
        return cls(rows, np.asarray(subjects, np.int64), subject_count, whiteners)

    def whiten(self, features: Layers) -> list[NDArray[np.float32]]:
        """Whiten raw query features, one (Q, D) array per layer."""
        return [w.whiten(f) for w, f in zip(self.whiteners, features, strict=True)]

    def blocks(self) -> Iterator[Block]:
        """Give the rows block by block, pose after pose."""
        for pose in range(len(self.rows[0])):
            yield from blocks_of(
                [layer[pose] for layer in self.rows], self.subjects, pose * self.slice_count
            )

    def match(self, features: Layers, protocol: Protocol, views: Views = as_stored) -> Matches:
        """Find the nearest rows of queries given by raw features, one (Q, D) array per layer."""
        return search(
            [self.whiten(view) for view in views(features)],
            self.blocks,
            self.subject_count,
            floor=protocol.floor,
            clamp=protocol.clamp,
        )


def fit_whiteners(
    layers: Sequence[NDArray[np.floating]], protocol: Protocol
) -> tuple[Whitener, ...]:
    """Fit one whitener per layer to all poses of all slices, (P, N, D) per layer."""
    return tuple(
        fit_whitener(layer.reshape(-1, layer.shape[-1]), protocol.whitening) for layer in layers
    )
