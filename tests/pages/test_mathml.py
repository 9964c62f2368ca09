"""Formulas as MathML."""

from xml.etree import ElementTree

import pytest

from vitreous.pages.mathml import mathml
from vitreous.pages.steps import STEPS


def inside(formula):
    made = mathml(formula)
    begin, end = '<math display="block"><mrow>', "</mrow></math>"
    assert made.startswith(begin)
    assert made.endswith(end)
    return made[len(begin) : -len(end)]


@pytest.mark.parametrize(
    ("formula", "wanted"),
    [
        ("x", "<mi>x</mi>"),
        ("12", "<mn>12</mn>"),
        ("LN", '<mi mathvariant="normal">LN</mi>'),
        ("z'", "<mi>z\N{PRIME}</mi>"),
        ("z_0", "<msub><mi>z</mi><mn>0</mn></msub>"),
        ("x^2", "<msup><mi>x</mi><mn>2</mn></msup>"),
        ("x_p^i", "<msubsup><mi>x</mi><mi>p</mi><mi>i</mi></msubsup>"),
        ("x^i_p", "<msubsup><mi>x</mi><mi>p</mi><mi>i</mi></msubsup>"),
        (
            "x^{n + 1}",
            "<msup><mi>x</mi><mrow><mi>n</mi><mo>+</mo><mn>1</mn></mrow></msup>",
        ),
        ("sqrt(d)", "<msqrt><mrow><mi>d</mi></mrow></msqrt>"),
        (
            "frac(a)(b_1)",
            "<mfrac><mrow><mi>a</mi></mrow><mrow><msub><mi>b</mi><mn>1</mn></msub></mrow></mfrac>",
        ),
        (
            "sqrt((a) b)",
            "<msqrt><mrow><mo>(</mo><mi>a</mi><mo>)</mo><mi>b</mi></mrow></msqrt>",
        ),
        ("f(x)", "<mi>f</mi><mo>(</mo><mi>x</mi><mo>)</mo>"),
        ("σ ∈ ℝ", "<mi>σ</mi><mo>∈</mo><mi>ℝ</mi>"),
        ("a < b & c", "<mi>a</mi><mo>&lt;</mo><mi>b</mi><mo>&amp;</mo><mi>c</mi>"),
    ],
)
def test_formulas(formula, wanted):
    assert inside(formula) == wanted


def test_a_root_inside_a_fraction():
    made = inside("softmax(frac(Q K^T)(sqrt(d_k)))")
    assert made.count("<mfrac>") == made.count("<msqrt>") == 1
    assert made.endswith("</mfrac><mo>)</mo>")


@pytest.mark.parametrize("key", [key for key, words in STEPS.items() if "equation" in words])
def test_the_equations_of_all_steps(key):
    """Well-formed, each script and fraction with as many parts as it takes, no brace left over."""
    parts = {"msub": 2, "msup": 2, "msubsup": 3, "mfrac": 2, "msqrt": 1}
    root = ElementTree.fromstring(mathml(STEPS[key]["equation"]))
    for node in root.iter():
        assert len(node) == parts.get(node.tag, len(node)), node.tag
        assert node.text not in ("{", "}", "_", "^", "frac", "sqrt")
