"""The course: vision transformers from pixels to proofs, in English and Chinese."""

from pathlib import Path

DIGITS = Path(__file__).with_name("digits")
"""The run folder of the ViT that the course looks into: digits of 8x8 pixels, 16 patches."""
