"""WebDataset's pipelines over the shards of an input."""

from __future__ import annotations

import copy
from typing import Any, Callable, NoReturn

from webdataset.compat import FluidInterface  # type: ignore[import-not-found, import-untyped, unused-ignore]

from ._errors import UsageError
from ._formats import open_webdataset
from ._order import Order
from .torch import SampleDataset

# Stages that need more than one sample, and what to use in their place.
_REFUSED = {
    "batched": "batch_size of stager.torch.loader", "listed": "batch_size of stager.torch.loader", "slice": "range in the training loop",
    "detshuffle": "shuffle(size, seed=…)", "mcached": "a larger window", "lmdb_cached": "a larger window", "with_epoch": "epochs of the plan",
    "repeat": "epochs of the plan", "resampled": "order of the plan", "with_length": "no length",
}  # fmt: skip


class _Stages:
    """Stages of a pipeline as the decode function of a SampleDataset: each gets one sample at a time."""

    def __init__(self, stages: tuple[Callable[..., Any], ...] = ()) -> None:
        self.stages = stages

    def __call__(self, sample: Any) -> Any:
        through = iter([sample])
        for stage in self.stages:
            through = stage(through)
        values = list(through)
        if len(values) > 1:
            raise UsageError(f"the stages of stager.webdataset made {len(values)} samples of one; make them in the training loop")
        return values[0] if values else None


class WebDataset(FluidInterface, SampleDataset):  # type: ignore[misc, unused-ignore]
    """The samples of an input with the methods of a webdataset.WebDataset; see stager.webdataset."""

    def __init__(self, input: str, **options: Any) -> None:
        super().__init__(input, decode=_Stages(), open=open_webdataset, **options)

    def _with(self, **changes: Any) -> WebDataset:
        new, old = copy.copy(self), self._order
        assert isinstance(old, Order)
        new._order, new._ends = Order(old.open, changes.get("decode", old.decode), changes.get("shuffle", old.shuffle), changes.get("seed", old.seed)), []
        new._mixes = new._order.shuffle > 1
        return new

    def compose(self, *stages: Any) -> WebDataset:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Returns the dataset with more stages, which take one sample each."""
        for stage in stages:
            name = getattr(getattr(stage, "f", None), "__name__", type(stage).__name__).lstrip("_")
            if name in _REFUSED or name == "shuffle":
                _refuse(name)
        decode = self._order.decode  # type: ignore[union-attr]
        assert isinstance(decode, _Stages)
        return self._with(decode=_Stages(decode.stages + stages))

    def shuffle(self, size: int, *, seed: int = 0, **_: Any) -> WebDataset:
        """Returns the dataset with a shuffle buffer of this many samples, before all stages. Its order is the same for the same seed."""
        return self._with(shuffle=size, seed=seed)

    def __getattribute__(self, name: str) -> Any:
        if name in _REFUSED:
            _refuse(name)
        return super().__getattribute__(name)


def _refuse(name: str) -> NoReturn:
    if name == "shuffle":
        raise UsageError("in a stage, shuffle sees one sample at a time; call shuffle(size, seed=…) of the dataset")
    raise UsageError(f"{name} needs more than one sample, and stager.webdataset acknowledges each; use {_REFUSED[name]}")
