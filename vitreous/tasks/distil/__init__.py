"""Feature distillation: a student gives the vectors of a teacher, from images alone."""
