"""Tensors between their layout and ours: the einops pattern of a rule, read in both directions."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

import torch
from einops import rearrange
from torch import Tensor

from vitreous.weights.rules.language import Rule, Shape

_NAMES = re.compile(r"[A-Za-z_]\w*")


def to_ours(rule: Rule, tensors: Sequence[Tensor], axes: Mapping[str, int]) -> Tensor:
    """Their tensors in our layout. A ValueError says which shape does not fit, and where."""
    shapes = [tuple(tensor.shape) for tensor in tensors]
    if not rule.patterns:
        our_shape(rule, shapes, axes)
        parts = _taken(rule, tensors[0], 1) if rule.takes else list(tensors)
        ours = torch.cat(parts) if len(parts) > 1 else parts[0]
    else:
        pattern, sizes, _ = _fitting(rule, shapes, axes)
        theirs = torch.stack(list(tensors)) if rule.stacks else tensors[0]
        for axis in repeated(pattern):
            theirs = theirs[..., None].expand(*theirs.shape, sizes[axis])
        pattern = _widened(pattern)
        grouped = _grouped(pattern.split("->")[0])
        known = {name: sizes[name] for name in grouped}
        ours = (
            _spread(theirs, pattern, known)
            if diagonal(pattern)
            else rearrange(theirs, pattern, **known)
        )
    return ours if rule.times == 1 else ours * rule.times


def left_by(rule: Rule, tensor: Tensor) -> Tensor | None:
    """What of their tensor is not ours, where it is not zero after all."""
    rest = torch.cat(_taken(rule, tensor, 0)) if rule.takes else None
    return rest if rest is not None and bool(rest.any()) else None


def _taken(rule: Rule, tensor: Tensor, which: int) -> list[Tensor]:
    parts = tensor.chunk(len(rule.takes))
    return [part for part, taken in zip(parts, rule.takes, strict=True) if taken == which]


def our_shape(
    rule: Rule, shapes: Sequence[Shape], axes: Mapping[str, int], *, guess: bool = False
) -> Shape:
    """The shape in our layout of tensors of theirs; `guess`: see `axis_lengths`."""
    if rule.patterns:
        pattern, sizes, rest = _fitting(rule, shapes, axes, guess=guess)
        return _shape_of(pattern.split("->")[1], sizes, rest)
    if rule.takes:
        count = len(rule.takes)
        if not shapes[0] or shapes[0][0] % count:
            raise ValueError(f"{shapes[0]} does not divide into {count} parts along its first axis")
        return (shapes[0][0] // count * sum(rule.takes), *shapes[0][1:])
    if len(shapes) > 1 and len({shape[1:] for shape in shapes if shape}) != 1:
        listed = ", ".join(map(str, shapes))
        raise ValueError(f"{listed} cannot be concatenated along their first axes")
    return (sum(shape[0] for shape in shapes), *shapes[0][1:]) if len(shapes) > 1 else shapes[0]


def axes_in(rule: Rule, shapes: Sequence[Shape], axes: Mapping[str, int]) -> dict[str, int]:
    """The lengths of the axes that the rule's pattern names, as far as the shapes show them."""
    try:
        return _fitting(rule, shapes, axes)[1] if rule.patterns else {}
    except ValueError:
        return {}


def pattern_of(rule: Rule, shapes: Sequence[Shape], axes: Mapping[str, int]) -> str | None:
    """The pattern that tensors of theirs were read by, if it is not the one that we write."""
    if len(rule.patterns) < 2:
        return None
    pattern = _fitting(rule, shapes, axes)[0]
    return None if pattern == rule.patterns[0] else pattern


def to_theirs(
    rule: Rule,
    value: Tensor,
    count: int,
    axes: Mapping[str, int],
    pattern: str | None = None,
    rest: Tensor | None = None,
) -> list[Tensor]:
    """Our tensor as `count` tensors of theirs: a pattern read from right to left, the first one
    unless another of the rule is given. rest: what the import left of theirs. A ValueError says
    what of it has no place there."""
    value = value if rule.times == 1 else value / rule.times
    if rule.rows == "first" and rest is not None:
        value = torch.cat((value, rest.to(value)))
    if rule.rows == "second":
        value = torch.cat((torch.zeros_like(value[:1]) if rest is None else rest.to(value), value))
    if rule.takes:
        ours = iter(value.chunk(sum(rule.takes)))
        empty = rule.takes.count(0)
        zeros = value.new_zeros(value.shape[0] // sum(rule.takes) * empty, *value.shape[1:])
        others = iter((zeros if rest is None else rest.to(value)).chunk(empty))
        return [torch.cat([next(ours if taken else others) for taken in rule.takes])]
    if not rule.patterns:
        if count == 1:
            return [value]
        parts = rule.parts or (1,) * count
        return list(value.split([value.shape[0] * part // sum(parts) for part in parts]))
    if pattern not in rule.patterns:
        pattern = next((p for p in rule.patterns if _may_give(p, value)), rule.patterns[0])
    chosen = _widened(pattern)
    left, right = (side.strip() for side in chosen.split("->"))
    inside = {name: axes[name] for name in _grouped(right) if name in axes}
    if diagonal(chosen):
        theirs = _gathered(value, chosen, inside)
    else:
        theirs = rearrange(value, f"{right} -> {left}", **inside)
    for axis in reversed(repeated(pattern)):
        if not torch.equal(theirs, theirs[..., :1].expand_as(theirs)):
            raise ValueError(f"their model has the same for all {axis}, and these differ")
        theirs = theirs[..., 0]
    return list(theirs.unbind(0)) if count > 1 or rule.stacks else [theirs]


def repeated(pattern: str) -> list[str]:
    """The axes that only our side of a pattern names: theirs is the same along these."""
    left, right = (dict.fromkeys(_NAMES.findall(side)) for side in pattern.split("->"))
    return [name for name in right if name not in left]


def _widened(pattern: str) -> str:
    """A pattern whose repeated axes are the last ones of theirs."""
    left, right = (side.strip() for side in pattern.split("->"))
    return f"{' '.join((left, *repeated(pattern)))} -> {right}"


def _may_give(pattern: str, value: Tensor) -> bool:
    ours = _axes(pattern.split("->")[1])
    return "..." in ours or len(ours) == value.ndim


def unit_advice(have: Shape, want: Shape) -> str:
    """For shapes that differ in axes of length 1: the pattern between them; else nothing."""

    def spelled(shape: Shape, *, units: bool = True) -> str:
        letters = iter("abcdefgh")
        return " ".join("1" if size == 1 and units else next(letters) for size in shape)

    left, right = ([size for size in shape if size != 1] for shape in (have, want))
    if left != right and not len(left) == len(want) < len(have):
        return ""
    ours = spelled(want, units=left == right)
    return f": give the rule the pattern '{spelled(have)} -> {ours}'"


def diagonal(pattern: str) -> str | None:
    """The axis that a pattern names twice on our side, if there is one: our tensor has theirs where
    both are the same, and zeros elsewhere."""
    names = _NAMES.findall(pattern.split("->")[-1])
    return next((name for name in names if names.count(name) > 1), None)


def apart(pattern: str) -> tuple[str, str, str]:
    """A pattern with a diagonal in three steps of distinct axes: theirs, our axes one by one with
    the diagonal's two last, ours."""
    left, right = (side.strip() for side in pattern.split("->"))
    twice = diagonal(pattern)
    again = f"{twice}_again"
    first = re.search(rf"\b{twice}\b", right)
    assert first is not None
    ours = right[: first.end()] + re.sub(rf"\b{twice}\b", again, right[first.end() :])
    axes = [name for name in re.findall(r"\w+", left) if name not in (twice, "1")]
    return left, " ".join(axes), ours


def _spread(theirs: Tensor, pattern: str, sizes: Mapping[str, int]) -> Tensor:
    """Theirs on the diagonal of ours."""
    twice, (left, axes, ours) = diagonal(pattern), apart(pattern)
    single = rearrange(theirs, f"{left} -> {axes} {twice}", **sizes)
    return rearrange(torch.diag_embed(single), f"{axes} {twice} {twice}_again -> {ours}")


def _gathered(value: Tensor, pattern: str, sizes: Mapping[str, int]) -> Tensor:
    """The reverse of `_spread`."""
    twice, (left, axes, ours) = diagonal(pattern), apart(pattern)
    again = {f"{twice}_again": size for name, size in sizes.items() if name == twice}
    both = rearrange(value, f"{ours} -> {axes} {twice} {twice}_again", **sizes, **again)
    single = both.diagonal(dim1=-2, dim2=-1)
    if int(both.count_nonzero()) != int(single.count_nonzero()):
        raise ValueError(f"only the diagonal of {twice} is kept, and other values are not zero")
    return rearrange(single, f"{axes} {twice} -> {left}")


def _fitting(
    rule: Rule, shapes: Sequence[Shape], axes: Mapping[str, int], *, guess: bool = False
) -> tuple[str, dict[str, int], Shape]:
    """The first pattern of a rule that fits, with the lengths of its axes."""
    problems = []
    if rule.stacks and len(set(shapes)) != 1:
        raise ValueError(f"{', '.join(map(str, shapes))} cannot be stacked: they differ")
    shape = (len(shapes), *shapes[0]) if rule.stacks else shapes[0]
    for pattern in rule.patterns:
        try:
            sizes, rest = axis_lengths(pattern.split("->")[0], shape, axes, guess=guess)
            for axis in repeated(pattern):
                if axis not in axes:
                    raise ValueError(f"the number of {axis} is not known: state it in `numbers`")
                sizes[axis] = axes[axis]
            return pattern, sizes, rest
        except ValueError as error:
            problems.append(f"{shape} does not fit the pattern {pattern!r}: {error}")
    raise ValueError("; ".join(problems))


def axis_lengths(
    side: str, shape: Shape, axes: Mapping[str, int], *, guess: bool = False
) -> tuple[dict[str, int], Shape]:
    """The length of each axis of one side of a pattern, for a tensor of this shape; and the lengths
    of the axes that `...` stands for.

    axes: lengths that are known. `guess` also divides a group of which too little is known, as
    patches usually are (square, of 3 channels) or in any way that keeps its product.
    """
    atoms = _axes(side)
    rest: Shape = ()
    if "..." in atoms:
        at = atoms.index("...")
        count = len(shape) - len(atoms) + 1
        if count >= 0:
            rest = tuple(shape[at : at + count])
            shape = (*shape[:at], *shape[at + count :])
        atoms.remove("...")
    if len(atoms) != len(shape):
        raise ValueError(f"it has {len(atoms)} axes, the tensor {len(shape)}")
    sizes: dict[str, int] = {}
    for atom, length in sorted(zip(atoms, shape, strict=True), key=lambda pair: "(" in pair[0]):
        names = re.findall(r"\w+", atom)
        known = {name: axes.get(name, sizes.get(name)) for name in names if name != "1"}
        unknown = [name for name, size in known.items() if size is None]
        product = math.prod(size for size in known.values() if size is not None)
        said = ", ".join(f"{name} = {size}" for name, size in known.items() if size is not None)
        if not unknown and product != length:
            raise ValueError(f"the axis '{atom}' is {length} long, not {product}")
        if unknown and (product == 0 or length % product):
            raise ValueError(f"the axis '{atom}' is {length} long, which {said} does not divide")
        if len(unknown) > 1 and not guess:
            wanted = " or ".join(unknown)
            raise ValueError(f"the length of {wanted} in '{atom}', {length} long, is not known")
        known |= _divided(length // product, unknown) if unknown else {}
        sizes |= {name: size for name, size in known.items() if size is not None}
    return sizes, rest


def _divided(length: int, unknown: list[str]) -> dict[str, int]:
    """A length as a product of axes: one takes it all, unless it is a patch."""
    if {"ph", "pw"} <= {*unknown} and len(unknown) == 3:
        (channels,) = {*unknown} - {"ph", "pw"}
        for count in (3, 1, 4, 2, *range(5, 33)):
            side = math.isqrt(length // count)
            if side * side * count == length:
                return {"ph": side, "pw": side, channels: count}
    return {**dict.fromkeys(unknown, 1), unknown[-1]: length}


def _shape_of(side: str, sizes: Mapping[str, int], rest: Shape) -> Shape:
    shape: list[int] = []
    for atom in _axes(side):
        if atom == "...":
            shape += rest
        else:
            shape.append(math.prod(sizes.get(name, 1) for name in re.findall(r"\w+", atom)))
    return tuple(shape)


def _grouped(side: str) -> set[str]:
    """The axes in parentheses, whose lengths einops needs."""
    return {
        name
        for group in re.findall(r"\(([^)]*)\)", side)
        for name in re.findall(r"\w+", group)
        if name != "1"
    }


def _axes(side: str) -> list[str]:
    """The axes of one side of a pattern; a group in parentheses is one axis."""
    return re.findall(r"\([^)]*\)|\S+", side)
