"""MAE: pixels of hidden patches, predicted from the visible ones."""
