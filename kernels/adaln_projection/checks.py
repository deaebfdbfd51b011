"""What the operators take, and what they say of anything else."""

import torch
from torch import Tensor

ALIGNMENT = 16  # bytes; the GPU loads vectors of this size


def check_tensors(dtypes: dict[str, torch.dtype], **tensors: Tensor) -> None:
    """Refuse tensors that are not all of the dtypes given, on one device that has an implementation.

    Raises:
        TypeError: a wrong dtype.
        ValueError: several devices, or one that is neither a CPU nor CUDA.
    """
    for name, tensor in tensors.items():
        if tensor.dtype != dtypes[name]:
            raise TypeError(f"adaln_projection: {name} must be {dtypes[name]}, got {tensor.dtype}")
    devices = {name: tensor.device for name, tensor in tensors.items()}
    if len(set(devices.values())) > 1:
        listed = ", ".join(f"{name} on {device}" for name, device in devices.items())
        raise ValueError(f"adaln_projection: all tensors must be on one device, got {listed}")
    device = next(iter(devices.values()))
    if device.type not in ("cpu", "cuda", "meta"):
        raise ValueError(f"adaln_projection runs on CPU and CUDA tensors, got {device}")


def check_shapes(shapes: dict[str, tuple[str, ...]], **tensors: Tensor) -> None:
    """Refuse tensors whose shapes do not fit the given ones, written in the sizes T, N and K.

    Raises:
        ValueError: dimensions or sizes that disagree, an empty tensor, or K not a multiple of 8.
    """
    sizes: dict[str, tuple[int, str]] = {}
    for name, tensor in tensors.items():
        expected, shape = shapes[name], tuple(tensor.shape)
        if len(shape) != len(expected):
            raise ValueError(
                f"adaln_projection: {name} must have shape [{', '.join(expected)}], got {list(shape)}"
            )
        for letter, size in zip(expected, shape, strict=True):
            first, origin = sizes.setdefault(letter, (size, name))
            if size != first:
                raise ValueError(
                    f"adaln_projection: {letter} is {first} in {origin} and {size} in {name}, which has "
                    f"shape {list(shape)} where [{', '.join(expected)}] is expected"
                )
            if size == 0:
                raise ValueError(f"adaln_projection: {name} is empty, its shape is {list(shape)}")
    if "K" in sizes and sizes["K"][0] % 8:
        raise ValueError(f"adaln_projection: K must be a multiple of 8, got {sizes['K'][0]}")


def prepared(tensor: Tensor) -> Tensor:
    """The tensor, contiguous and aligned for the GPU; a copy where it was not."""
    tensor = tensor.contiguous()
    return tensor.clone() if tensor.is_cuda and tensor.data_ptr() % ALIGNMENT else tensor
