"""Images that are named on the command line, and messages about those that cannot be used."""

from __future__ import annotations

import sys

import tyro

from vitreous.errors import DataError
from vitreous.terminal import print

IMAGES = tyro.conf.arg(metavar="IMAGES...", help_behavior_hint="(required)")


class Complaints:
    """Prints a line for each image that cannot be used; when all others are done, an error."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, what: object) -> None:
        self.count += 1
        print(f"vitreous: {what}", file=sys.stderr, flush=True)

    def raise_if_any(self, given: int, what: str = "images") -> None:
        if self.count:
            raise DataError(f"{self.count} of {given} {what} could not be used: see above")
