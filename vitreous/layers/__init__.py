"""The equations that several papers share. Nothing here needs more than torch."""
