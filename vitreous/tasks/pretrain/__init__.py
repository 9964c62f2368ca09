"""Learning without labels: what the methods of pre-training share."""
