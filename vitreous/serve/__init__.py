"""The HTTP server: models behind an address, and a page to try them."""
