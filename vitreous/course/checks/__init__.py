"""What the exercises of each chapter must give: `cNN.steps()`."""
