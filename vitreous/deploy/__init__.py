"""From a trained model to a file that runs elsewhere: rewriting, exporting, verifying."""
