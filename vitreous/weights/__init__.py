"""Weights from and to other libraries. `import_weights` is in `importing`, `export_weights` in
`exporting`; nothing is imported here, so that the catalog can be listed without torch."""
