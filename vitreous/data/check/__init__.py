"""The data check: every image is read once, and every problem is named."""
