"""Reports without their figures, for tests of something else.

To draw those takes several times as long as the tests' trainings; tests of their own prove them.
"""

import contextlib
from unittest import mock

from vitreous.pages import report, template


@contextlib.contextmanager
def undrawn():
    filters = template._environment().filters
    with (
        mock.patch.object(report, "inside_sections", return_value=[]),
        mock.patch.dict(filters, svg=lambda figure: ""),
    ):
        yield
