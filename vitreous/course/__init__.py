"""The course: chapters in two languages, exercises and their checks, cards, and numbers for all."""
