"""What the tasks that find objects share: boxes, matching, losses, metrics, drawing."""
