"""Named arrays to one vector and back.

A model update is a dict or list of arrays of mixed shapes and float types (or one array). Its *layout* is read off
once; with it every user's update becomes one vector, and the aggregate comes back with the names, shapes and types
that went in. NumPy arrays and torch tensors are both understood; torch is never imported, a tensor is asked for what
it can do.

Rules for what is not a plain float array:

- float16, bfloat16, float32 and float64 are carried exactly; the vector is float32 when all of them fit, else float64.
- Integers and booleans travel as floats and come back as floats, since a mean of integers is not one. A caller who
  needs the model's own types asks for them, and gets the nearest integer (halves to even) within what the type holds.
  An integer beyond 2^53, which a float cannot carry, is refused.
- Parameters tied to one another (the same memory under two names) are sent once and come back under both names.
- Complex numbers, strings and objects are refused.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from heterosag.errors import UsageError

__all__ = ["Layout", "Slot"]

FloatVector = npt.NDArray[np.floating[Any]]

_EXACT_INTEGER = 1 << 53


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One array's place in the vector.

    Args:
        name: The array's name.
        shape: Its shape.
        dtype: The name of its type.
        offset: Its first element in the vector; of a tied array, that of the array it is tied to.
        size: How many elements it has.
        tied: Whether it shares its memory with an array before it.
        restore: Makes the array from its elements; the flag rounds integers.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    offset: int
    size: int
    tied: bool
    restore: Callable[[FloatVector, bool], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where each array of an update is in the vector, and how it comes back.

    Args:
        kind: `dict`, `list`, `tuple` or `array`.
        slots: A place for each array.
        dimension: Elements of the vector.
        dtype: The vector's type.
        container: Makes a mapping like the one that came.

    Example:
        >>> import numpy as np
        >>> from heterosag.vector.arrays import Layout
        >>> update = {"weight": np.ones((2, 3), np.float32), "bias": np.zeros(3, np.float32)}
        >>> layout = Layout.of(update)
        >>> layout.dimension
        9
        >>> layout.restore(2 * layout.flatten(update))["weight"].shape
        (2, 3)
    """

    kind: str
    slots: tuple[Slot, ...]
    dimension: int
    dtype: np.dtype[np.floating[Any]]
    container: Callable[[dict[str, Any]], Any] = dict

    @property
    def sizes(self) -> tuple[int, ...]:
        """Elements of each array as they follow each other in the vector; tied and empty ones are left out."""
        return tuple(slot.size for slot in self._carried)

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each array that `sizes` has."""
        return tuple(slot.name for slot in self._carried)

    @property
    def _carried(self) -> list[Slot]:
        return [slot for slot in self.slots if slot.size and not slot.tied]

    @classmethod
    def of(cls, arrays: Any) -> Layout:
        """The layout of a dict, list or tuple of arrays, or of one array.

        Args:
            arrays: Arrays of numpy or torch.

        Returns:
            The layout.

        Raises:
            UsageError: This is none of these, or an array is not of numbers.
        """
        kind = _kind(arrays)
        slots: list[Slot] = []
        seen: dict[tuple[Any, ...], int] = {}
        dimension = 0
        wide = False
        for name, array in _named(arrays, kind):
            values = _to_numpy(array, name)
            memory = _memory(array)
            tied = values.size > 0 and memory is not None and memory in seen
            offset = seen.setdefault(memory, dimension) if values.size and memory is not None else dimension
            slots.append(
                Slot(
                    name=name,
                    shape=values.shape,
                    dtype=_dtype_name(array),
                    offset=offset,
                    size=values.size,
                    tied=tied,
                    restore=_restorer(array, values),
                )
            )
            wide = wide or values.dtype not in (np.dtype(np.float16), np.dtype(np.float32))
            dimension += 0 if tied else values.size
        if not dimension:
            raise UsageError("an update needs at least one element")
        container = OrderedDict if isinstance(arrays, OrderedDict) else dict  # as a torch state_dict is
        dtype = np.dtype("f8" if wide else "f4")
        return cls(kind=kind, slots=tuple(slots), dimension=dimension, dtype=dtype, container=container)

    def flatten(self, arrays: Any) -> FloatVector:
        """The arrays as one vector.

        Args:
            arrays: As in `of`.

        Returns:
            The vector.

        Raises:
            UsageError: The arrays do not fit this layout.
        """
        kind = _kind(arrays)
        if kind != self.kind:
            raise UsageError(f"this update is a {kind}, the layout's was a {self.kind}")
        given = dict(_named(arrays, kind))
        names = {slot.name for slot in self.slots}
        if given.keys() != names:
            missing, extra = sorted(names - given.keys()), sorted(given.keys() - names)
            raise UsageError(f"its arrays are not those of the first update: missing {missing}, unknown {extra}")
        if self.kind == "array":
            return self._checked(self.slots[0], given[self.slots[0].name]).astype(self.dtype, copy=False).reshape(-1)
        vector = np.empty(self.dimension, dtype=self.dtype)
        for slot in self.slots:
            values = self._checked(slot, given[slot.name]).reshape(-1)
            place = vector[slot.offset : slot.offset + slot.size]
            if not slot.tied:
                place[:] = values
            elif not np.array_equal(place, values.astype(self.dtype), equal_nan=True):
                raise UsageError(f"array {slot.name!r} is tied to another one in the layout but differs from it here")
        return vector

    def restore(self, vector: FloatVector, *, round_integers: bool = False) -> Any:
        """The inverse of `flatten`: names, shapes, float types and devices as they came.

        Arrays of integers and booleans come back as float64, or rounded to their own type with `round_integers`.

        Args:
            vector: It has the layout's dimension.
            round_integers: Round arrays of integers and booleans to their own type.

        Returns:
            What came, with other values.

        Raises:
            UsageError: The vector has another size.
        """
        if vector.shape != (self.dimension,):
            raise UsageError(f"this layout has {self.dimension} elements, the vector has the shape {vector.shape}")
        arrays = {
            slot.name: slot.restore(vector[slot.offset : slot.offset + slot.size].reshape(slot.shape), round_integers)
            for slot in self.slots
        }
        if self.kind == "dict":
            return self.container(arrays)
        if self.kind == "array":
            return next(iter(arrays.values()))
        return list(arrays.values()) if self.kind == "list" else tuple(arrays.values())

    def _checked(self, slot: Slot, array: Any) -> npt.NDArray[Any]:
        values = _to_numpy(array, slot.name)
        if values.shape != slot.shape:
            raise UsageError(f"array {slot.name!r} has the shape {values.shape}, expected is {slot.shape}")
        return values


def _kind(arrays: Any) -> str:
    if isinstance(arrays, Mapping):
        return "dict"
    if isinstance(arrays, tuple):
        return "tuple"
    return "list" if isinstance(arrays, Sequence) and not isinstance(arrays, (str, bytes)) else "array"


def _named(arrays: Any, kind: str) -> Iterator[tuple[str, Any]]:
    if kind == "dict":
        for name, array in arrays.items():
            if not isinstance(name, str):
                raise UsageError(f"arrays are named by strings, not by {name!r}")
            yield name, array
    elif kind == "array":
        yield "0", arrays
    else:
        yield from ((str(index), array) for index, array in enumerate(arrays))


def _is_tensor(array: Any) -> bool:
    return hasattr(array, "detach") and hasattr(array, "new_tensor")


def _dtype_name(array: Any) -> str:
    return str(array.dtype if hasattr(array, "dtype") else np.asarray(array).dtype).removeprefix("torch.")


def _to_numpy(array: Any, name: str) -> npt.NDArray[Any]:
    """The array's values in a NumPy type: a real float, after checking that the type can be carried at all."""
    if _is_tensor(array):
        tensor = array.detach().cpu()
        values: npt.NDArray[Any] = (tensor.float() if _dtype_name(tensor) == "bfloat16" else tensor).numpy()
    else:
        values = np.asarray(array)
    if values.dtype.name == "bfloat16":
        values = values.astype(np.float32)
    if values.dtype.kind in "iub":
        if values.size and max(abs(int(values.min())), abs(int(values.max()))) > _EXACT_INTEGER:
            raise UsageError(f"array {name!r} holds integers beyond 2^53, which a float vector cannot carry")
        return values
    if values.dtype.kind != "f" or values.dtype.itemsize > 8:
        raise UsageError(
            f"array {name!r} has the type {values.dtype}: only float16, bfloat16, float32, float64, "
            "integers and booleans can be aggregated; of a PyTorch model give the state_dict()"
        )
    return values


def _memory(array: Any) -> tuple[Any, ...] | None:
    """What tells two views of the same memory from two arrays; None for what has no memory of its own."""
    if _is_tensor(array):
        return array.data_ptr(), tuple(array.shape), tuple(array.stride()), str(array.dtype)
    if isinstance(array, np.ndarray):
        return array.__array_interface__["data"][0], array.shape, array.strides, array.dtype.str
    return None


def _restorer(array: Any, values: npt.NDArray[Any]) -> Callable[[FloatVector, bool], Any]:
    """How a slice of the aggregate becomes an array like the original; keeps no data of the original."""
    dtype = values.dtype
    integers = dtype.kind in "iub"
    if _is_tensor(array):
        template = array.detach().new_tensor([])
        as_float = template.double() if integers else template

        def to_tensor(part: FloatVector, round_integers: bool) -> Any:
            if integers and round_integers:
                return template.new_tensor(_round(part, dtype))
            return as_float.new_tensor(np.array(part))

        return to_tensor
    original = np.dtype(np.float64) if integers else np.asarray(array).dtype

    def to_array(part: FloatVector, round_integers: bool) -> Any:
        return _round(part, dtype) if integers and round_integers else part.astype(original)

    return to_array


def _round(part: FloatVector, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    whole = np.rint(part)
    if dtype.kind == "b":
        return whole >= 1.0
    limits = np.iinfo(dtype)
    low, high = max(limits.min, -_EXACT_INTEGER), min(limits.max, _EXACT_INTEGER)
    return np.clip(whole, low, high).astype(dtype)
